"""The one watch over the gateway: looks twice a second, remembers, and tells whoever follows.

Looking costs one walk over nodes and lanes, and is done for all followers at once. Without
followers it looks once a second, for the time line. A follower is told the newest picture when it
comes to ask, never older ones: a slow one misses some and holds nothing up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from forebay.dashboard.drawing import draw_models, draw_nodes, draw_queue
from forebay.dashboard.fleet import draw_fleet
from forebay.dashboard.history import History, Reading
from forebay.dashboard.picture import Picture
from forebay.dashboard.problems import Problems
from forebay.dashboard.troubles import Moment, find_troubles
from forebay.dashboard.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from forebay.clock import TimerHandle, Timers
    from forebay.coordination import Fleet
    from forebay.dashboard.lookout import Look
    from forebay.dashboard.picture import FleetPicture, JobsPicture, SessionsPicture
    from forebay.dashboard.problems import Remedy
    from forebay.nodes.registry import Nodes

LOOK_S: Final = 0.5
"""How often followers are told: at most a second from a change to the eye, with room to spare."""
FOLLOWERS_MAX: Final = 100
VERSION: Final = 1


class Status(msgspec.Struct, frozen=True):
    """What the settings and the life of the gateway add to the picture."""

    draining: bool
    ready: bool
    queue_enabled: bool
    wait_s_max: float
    priorities: Sequence[str]
    retries: int


@dataclass(frozen=True)
class Surroundings:
    """What the watch looks at."""

    look: Callable[[Callable[[Look], None]], None]
    """Ask for a picture of the queue; it may come a little later."""
    nodes: Nodes
    clock: Timers
    waits: Callable[[], list[int]]
    """How long requests waited since the start, by bucket."""
    bounds_s: Sequence[float]
    outcomes: Callable[[], Mapping[str, int]]
    """How requests ended badly since the start, by code."""
    remedy_of: Callable[[str], Remedy]
    status: Callable[[], Status]
    jobs: Callable[[], JobsPicture]
    sessions: Callable[[], SessionsPicture]
    fleet: Callable[[], Fleet | None]
    """The gateways that share the queue with this one."""
    watched: Callable[[], None]
    """Called at every look while someone follows: a time to refresh what costs more."""
    epoch: str
    gateway: str
    """Its version."""


class Watch:
    """Looks, remembers, tells."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._history = History(around.bounds_s)
        self._problems = Problems(around.remedy_of)
        self._started_s = around.clock.monotonic_s()
        self._timer: TimerHandle | None = None
        self._even = False
        self._drawn_s = self._started_s - LOOK_S
        self._mode = ""
        self._mode_since_s = self._started_s
        self._followers: set[Follower] = set()
        self._stopped = False
        self.frame = b""
        """The newest picture, as the event that tells it."""
        self.caption: Words | None = None
        """What a demo says is going on."""

    @property
    def followers(self) -> int:
        """How many follow."""
        return len(self._followers)

    def start(self) -> None:
        """Begin to look."""
        if self._timer is None and not self._stopped:
            self._arm()

    def stop(self) -> None:
        """Look no more, and let the followers go; may be called twice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for follower in list(self._followers):
            follower.wake()

    @property
    def stopped(self) -> bool:
        """Whether it is over."""
        return self._stopped

    def follow(self, *, admin: bool, keys: bool) -> Follower:
        """Return a follower; it counts as one while its `with` block lasts."""
        return Follower(self, self._hello(admin=admin, keys=keys))

    def enter(self, follower: Follower) -> None:
        """Tell this one from now on; the first picture at once, and not to all the others."""
        self._followers.add(follower)
        if self._around.clock.monotonic_s() - self._drawn_s < LOOK_S:
            follower.wake()
            return

        def drawn(look: Look) -> None:
            self._draw(look)
            follower.wake()

        self._around.look(drawn)

    def leave(self, follower: Follower) -> None:
        """Tell it no more."""
        self._followers.discard(follower)

    # -- inside

    def _arm(self) -> None:
        clock = self._around.clock
        self._timer = clock.call_at(clock.monotonic_s() + LOOK_S, self._look)

    def _look(self) -> None:
        self._even = not self._even
        if self._even:
            self._around.look(self._remember)
        if self._followers:
            self._around.watched()
            self._around.look(self._tell)
        if not self._stopped:
            self._arm()

    def _remember(self, look: Look) -> None:
        """Take one second into the time line."""
        around, seen, totals = self._around, look.snapshot, look.snapshot.totals
        self._problems.add(around.outcomes(), around.clock.monotonic_s())
        fleet = self._fleet(look)
        refused = sum(totals.rejected.values()) + totals.expired
        self._history.add(
            Reading(
                depth=seen.by_priority,
                processing=seen.running,
                served=totals.served,
                rejected=refused if fleet else self._problems.rejected(),
                waits=around.waits(),
                source=fleet and (fleet.mode, fleet.epoch),
            )
        )

    def _draw(self, look: Look) -> None:
        self.frame = _event("snapshot", self.picture(look))
        self._drawn_s = self._around.clock.monotonic_s()

    def _tell(self, look: Look) -> None:
        self._draw(look)
        for follower in self._followers:
            follower.wake()

    def _fleet(self, look: Look) -> FleetPicture | None:
        """Draw the fleet, if there is one, and take note of when its mode changes."""
        fleet = self._around.fleet()
        if fleet is None:
            return None
        known, now_s = fleet.picture(), self._around.clock.monotonic_s()
        if known.mode != self._mode:
            self._mode, self._mode_since_s = known.mode, now_s
        return draw_fleet(known, mode_s=now_s - self._mode_since_s, age_s=look.age_s)

    def picture(self, look: Look) -> Picture:
        """Draw one moment."""
        around, status, seen = self._around, self._around.status(), look.snapshot
        fleet = self._fleet(look)
        now_s = around.clock.monotonic_s()
        queue = draw_queue(
            seen, self._history, enabled=status.queue_enabled, retries=status.retries
        )
        models = draw_models(seen.lanes)
        nodes = list(draw_nodes(around.nodes, seen.nodes, now_s))
        refused = self._problems.last_minute("rejection")
        moment = Moment(
            queue=queue,
            models=models,
            nodes=nodes,
            draining=status.draining,
            searching=around.nodes.is_starting(),
            wait_s_max=status.wait_s_max,
            refused=refused,
            remedy=self._problems.remedy(next(iter(refused))) if refused else Words("", ""),
            fleet=fleet,
        )
        return Picture(
            at=self._at(),
            uptime_seconds=round(now_s - self._started_s, 1),
            draining=status.draining,
            ready=status.ready,
            queue=queue,
            models=models,
            nodes=nodes,
            jobs=around.jobs(),
            sessions=around.sessions(),
            problems=self._problems.shown(now_s),
            troubles=find_troubles(moment),
            sample=self._history.newest,
            sample_number=self._history.number,
            caption=self.caption,
            fleet=fleet or UNSET,
        )

    def _hello(self, *, admin: bool, keys: bool) -> bytes:
        priorities = self._around.status().priorities
        about = {
            "version": VERSION,
            "gateway": self._around.gateway,
            "epoch": self._around.epoch,
            "admin": admin,
            "keys": keys,
            "priorities": list(priorities),
            "history": {"at": self._at(), **self._history.columns(priorities)},
        }
        return b"retry: 1000\n\n" + _event("hello", about)

    def _at(self) -> str:
        return self._around.clock.utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Follower:
    """One reader of the pictures."""

    def __init__(self, watch: Watch, hello: bytes) -> None:
        self._watch = watch
        self._hello = hello
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There is something new, or it is over."""
        self._news.set()

    async def next(self) -> bytes | None:
        """Wait for what is new; None once the watch has stopped."""
        if self._hello:
            hello, self._hello = self._hello, b""
            return hello
        if self._watch.stopped:
            return None
        await self._news.wait()
        self._news.clear()
        return None if self._watch.stopped else self._watch.frame

    def __enter__(self) -> Self:
        self._watch.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.leave(self)


def _event(name: str, value: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
