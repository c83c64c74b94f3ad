"""The feed behind `GET /events`: a snapshot twice a second for every subscriber, and the history.

One walk over nodes and lanes serves all subscribers. Without subscribers the queue is observed once
a second, for the history. A subscriber gets the newest snapshot when it is ready for one, never
older ones: a slow one misses some and delays nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.api.events import DashboardSnapshot, Hello, Words
from forebay.api.fields import OMITTED
from forebay.dashboard.fleet import fleet_snapshot
from forebay.dashboard.history import HistoryReading, SampleHistory
from forebay.dashboard.minutes import MinuteSeries
from forebay.dashboard.recent_errors import RecentErrors, RecentFailures
from forebay.dashboard.snapshot import model_snapshots, node_snapshots, queue_snapshot
from forebay.dashboard.troubles import ObservedState, find_troubles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from forebay.api.events import FleetSnapshot, JobsSnapshot, SessionsSnapshot
    from forebay.api.status import DayHistory
    from forebay.clock import TimerHandle, Timers
    from forebay.coordination import Fleet
    from forebay.dashboard.observer import QueueObservation
    from forebay.dashboard.recent_errors import Remedy
    from forebay.nodes.registry import Nodes


INTERVAL_S: Final = 0.5
"""Between two snapshots: a change is seen within a second, with time to spare."""


class LifecycleStatus(msgspec.Struct, frozen=True):
    """What the settings and the lifecycle of the gateway add to a snapshot."""

    draining: bool
    ready: bool
    queue_enabled: bool
    wait_s_max: float
    priorities: Sequence[str]
    retries: int
    lost_files: Sequence[str] = ()
    unreadable_keys: int = 0


@dataclass(frozen=True)
class DashboardDeps:
    """What a snapshot is made of."""

    observe: Callable[[Callable[[QueueObservation], None]], None]
    """Calls back with the queue, perhaps a little later."""
    nodes: Nodes
    clock: Timers
    waits: Callable[[], Mapping[str, Sequence[int]]]
    """How long requests waited since the start, by priority and bucket."""
    first_tokens: Callable[[], list[int]]
    """How long streams took to their first token since the start, by bucket."""
    output_tokens: Callable[[], int]
    """The tokens of all answers since the start."""
    bounds_s: Sequence[float]
    outcomes: Callable[[], Mapping[str, int]]
    """How requests ended badly since the start, by code."""
    remedy_of: Callable[[str], Remedy]
    status: Callable[[], LifecycleStatus]
    jobs: Callable[[], JobsSnapshot]
    sessions: Callable[[], SessionsSnapshot]
    fleet: Callable[[], Fleet | None]
    """The gateways that share the queue with this one."""
    refresh: Callable[[], None]
    """Called before each snapshot while there are subscribers: refreshes what costs more."""
    epoch: str
    gateway: str
    """Its version."""


class DashboardFeed:
    """Takes snapshots, keeps the history, serves subscribers."""

    def __init__(self, deps: DashboardDeps) -> None:
        self._deps = deps
        self._history = SampleHistory(deps.bounds_s)
        self.minutes = MinuteSeries(deps.bounds_s)
        self._recent_errors = RecentErrors(deps.remedy_of)
        self._recent_failures = RecentFailures()
        self._started_s = deps.clock.monotonic_s()
        self._timer: TimerHandle | None = None
        self._is_whole_second = False
        self._snapshot_s = self._started_s - INTERVAL_S
        self._mode = ""
        self._mode_since_s = self._started_s
        self._subscribers: set[FeedSubscriber] = set()
        self._stopped = False
        self.frame = b""
        """The newest snapshot, as an event."""
        self.caption: Words | None = None
        """What a demo shows."""

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    def start(self) -> None:
        """Begin; what was counted before is no news: the worker that led before has told it."""
        if self._timer is None and not self._stopped:
            self._deps.observe(self._begin)
            self._arm()

    def stop(self) -> None:
        """End the subscriptions; may be called twice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for subscriber in list(self._subscribers):
            subscriber.wake()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def subscribe(self, *, admin: bool, keys: bool) -> FeedSubscriber:
        """Return a subscriber; it counts as one while its `with` block lasts."""
        return FeedSubscriber(self, self._hello(admin=admin, keys=keys))

    def add(self, subscriber: FeedSubscriber) -> None:
        """Serve a subscriber; its first snapshot comes at once, and only to it."""
        self._subscribers.add(subscriber)
        if self._deps.clock.monotonic_s() - self._snapshot_s < INTERVAL_S:
            subscriber.wake()
            return

        def observed(seen: QueueObservation) -> None:
            self._take_snapshot(seen)
            subscriber.wake()

        self._deps.observe(observed)

    def remove(self, subscriber: FeedSubscriber) -> None:
        self._subscribers.discard(subscriber)

    # -- inside

    def _arm(self) -> None:
        clock = self._deps.clock
        self._timer = clock.call_at(clock.monotonic_s() + INTERVAL_S, self._tick)

    def _tick(self) -> None:
        self._is_whole_second = not self._is_whole_second
        if self._is_whole_second:
            self._deps.observe(self._add_sample)
        if self._subscribers:
            self._deps.refresh()
            self._deps.observe(self._publish)
        if not self._stopped:
            self._arm()

    def _begin(self, observed: QueueObservation) -> None:
        self._recent_errors.begin(self._deps.outcomes())
        self._history.begin(self._read(observed))

    def _add_sample(self, observed: QueueObservation) -> None:
        deps = self._deps
        self._recent_errors.add(deps.outcomes(), deps.clock.monotonic_s())
        self._recent_failures.add(
            {(node.name, kind): n for node in deps.nodes for kind, n in node.failures.items()}
        )
        reading = self._read(observed)
        self._history.add(reading)
        self._add_to_day(reading.waits)

    def _read(self, observed: QueueObservation) -> HistoryReading:
        deps, seen, totals = self._deps, observed.snapshot, observed.snapshot.totals
        fleet = self._fleet(observed)
        refused = sum(totals.rejected.values()) + totals.expired
        return HistoryReading(
            depth=seen.by_priority,
            processing=seen.running,
            served=totals.served,
            rejected=refused if fleet else self._recent_errors.rejected(),
            waits=deps.waits(),
            first_tokens=deps.first_tokens(),
            output_tokens=deps.output_tokens(),
            source=fleet and (fleet.mode, fleet.epoch),
        )

    def _add_to_day(self, waits: Mapping[str, Sequence[int]]) -> None:
        newest, history = self._history.newest, self._history
        assert newest is not None
        at = self._deps.clock.utc().timestamp()
        self.minutes.add(newest, history.tokens_per_second(), waits, at)

    def day(self, hours: int) -> DayHistory:
        """Return the last hours by the minute, as columns."""
        since = int(self._deps.clock.utc().timestamp()) // 60 - hours * 60
        priorities = self._deps.status().priorities
        return self.minutes.history(priorities, since)

    def _take_snapshot(self, observed: QueueObservation) -> None:
        self.frame = _event("snapshot", self.snapshot(observed))
        self._snapshot_s = self._deps.clock.monotonic_s()

    def _publish(self, observed: QueueObservation) -> None:
        self._take_snapshot(observed)
        for subscriber in self._subscribers:
            subscriber.wake()

    def _fleet(self, observed: QueueObservation) -> FleetSnapshot | None:
        """Return the fleet, if there is one, and note when its mode changes."""
        fleet = self._deps.fleet()
        if fleet is None:
            return None
        known, now_s = fleet.picture(), self._deps.clock.monotonic_s()
        if known.mode != self._mode:
            self._mode, self._mode_since_s = known.mode, now_s
        return fleet_snapshot(known, mode_s=now_s - self._mode_since_s, age_s=observed.age_s)

    def snapshot(self, observed: QueueObservation) -> DashboardSnapshot:
        deps, status, seen = self._deps, self._deps.status(), observed.snapshot
        fleet = self._fleet(observed)
        now_s = deps.clock.monotonic_s()
        queue = queue_snapshot(
            seen, self._history, enabled=status.queue_enabled, retries=status.retries
        )
        models = model_snapshots(seen.lanes)
        failures = self._recent_failures.by_node()
        nodes = list(node_snapshots(deps.nodes, seen.nodes, failures, now_s))
        refused = self._recent_errors.last_minute("rejection")
        state = ObservedState(
            queue=queue,
            models=models,
            nodes=nodes,
            draining=status.draining,
            searching=deps.nodes.is_starting(),
            wait_s_max=status.wait_s_max,
            refused=refused,
            remedy=self._recent_errors.remedy(next(iter(refused))) if refused else Words("", ""),
            fleet=fleet,
            lost_files=status.lost_files,
            unreadable_keys=status.unreadable_keys,
        )
        return DashboardSnapshot(
            at=self._at(),
            uptime_seconds=round(now_s - self._started_s, 1),
            draining=status.draining,
            ready=status.ready,
            queue=queue,
            models=models,
            nodes=nodes,
            jobs=deps.jobs(),
            sessions=deps.sessions(),
            problems=self._recent_errors.shown(now_s),
            troubles=find_troubles(state),
            sample=self._history.newest,
            sample_number=self._history.number,
            caption=self.caption,
            fleet=fleet or OMITTED,
        )

    def _hello(self, *, admin: bool, keys: bool) -> bytes:
        priorities = self._deps.status().priorities
        about = Hello(
            gateway=self._deps.gateway,
            epoch=self._deps.epoch,
            admin=admin,
            keys=keys,
            priorities=list(priorities),
            history=self._history.timeline(priorities, self._at()),
        )
        return b"retry: 1000\n\n" + _event("hello", about)

    def _at(self) -> str:
        return self._deps.clock.utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


class FeedSubscriber:
    """One client of the feed."""

    def __init__(self, feed: DashboardFeed, hello: bytes) -> None:
        self._feed = feed
        self._hello = hello
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Let `next` return: there is a new snapshot, or the feed has stopped."""
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next event; None once the feed has stopped."""
        if self._hello:
            hello, self._hello = self._hello, b""
            return hello
        if self._feed.stopped:
            return None
        await self._changed.wait()
        self._changed.clear()
        return None if self._feed.stopped else self._feed.frame

    def __enter__(self) -> Self:
        self._feed.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.remove(self)


def _event(name: str, value: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
