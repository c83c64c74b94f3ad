"""What the core knows of a node: its slots, what runs there, which models are in memory.

A lease is one entry in `Node.leases`: taken by `take`, given back by `give_back`, and both are
called from one place each. Nothing counts up and down, so nothing can drift: the number of leases
is the size of a dict. A lowered slot count drains: no lease is ever taken away.

A request that fails while its node answers others has itself to blame: a *strike* of its user on
that node. With `STRIKES_MAX` of them the user's requests start there only when nobody else's of
their class waits for the node, until one is answered or `STRIKES_S` have passed since the last.
What fails otherwise is counted in `forebay.nodes.health`.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from forebay.core.cache_room import CacheRoom
from forebay.core.prefixes import PrefixCache
from forebay.core.shares import Shares
from forebay.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.actions import WaitReason
    from forebay.core.entries import Entry
    from forebay.core.events import Finished, NodeChanged
    from forebay.core.lanes import Lane

GPU_SHARE: Final = 0.3
"""Weight of the GPU's load in the choice of a node; specification 1."""
BUSY_SHARE: Final = 0.7
"""Weight of the slots in use; specification 1."""
BROKEN_OFF_S: Final = 1.0
"""How long a node may take to notice that a request was broken off."""
BROKEN_OFF_MAX: Final = 256  # no node has more slots
STRIKES_MAX: Final = 3
STRIKES_S: Final = 600.0
STRUCK_MAX: Final = 256  # users with strikes that are remembered of a node: the latest
NOTICE_S: Final = 0.1
"""How long a node rests that says it is busy meanwhile: most notice within milliseconds."""
LOADS_RECENT: Final = 9
"""The median of so many is a load time: a run may be several times as long as a usual one."""


def new_excuses() -> deque[float]:
    """Return a memory of when requests were cancelled on a node: see `is_excused`."""
    return deque(maxlen=BROKEN_OFF_MAX)


def is_excused(broken_off: deque[float], now_s: float) -> bool:
    """Say whether a refusal is excused by a cancellation just before, and use that up.

    The node may not have noticed yet that it has room for one more; but not for more than one, so
    that who cancels often does not hide that it is full.

    >>> is_excused(deque([1.0, 5.0]), 5.5), is_excused(deque([1.0]), 5.5)
    (True, False)
    """
    while broken_off:
        if now_s - broken_off.popleft() <= BROKEN_OFF_S:
            return True
    return False


class Load:
    """A model that was put into memory, and the run that had it loaded."""

    __slots__ = ("began_s", "entry", "is_over")

    def __init__(self, entry: Entry, began_s: float) -> None:
        self.entry = entry
        self.began_s = began_s
        self.is_over = False  # certainly: a run of the model has ended well since


class Node:
    """One backend server."""

    __slots__ = (
        "_left_s", "_load_is_told", "_loads", "away_since_s", "broken_off", "families",
        "gpu_load", "held", "holds_all", "is_new", "lanes", "leases", "lent", "load_s",
        "loaded", "loaded_max", "loads", "models", "name", "on_trial", "prefixes",
        "ready_at_s", "removed", "rest_until_s", "room", "seq", "shares", "slots", "state",
        "strikes", "swap_rank", "swap_target", "swap_victim", "used_at", "wake_s",
    )  # fmt: skip

    def __init__(self, name: str, seq: int, ranks: int) -> None:
        self.name = name
        self.seq = seq  # in which order nodes became known
        self.state = "offline"
        self.away_since_s = 0.0  # valid while it is not online
        self.is_new = False  # whether it has never answered
        self.ready_at_s: float | None = None  # while it loads, as far as that is known
        self.slots = 0
        self.gpu_load = 0.0
        self.models: tuple[str, ...] = ()
        self.families: tuple[str, ...] = ()
        self.on_trial: tuple[str, ...] = ()  # models of which one request at a time may run here
        self.leases: dict[str, str] = {}  # what runs here, by id, and its model
        self.lent = 0  # slots set aside for others to fill, and not filled as far as we know
        self.rest_until_s = 0.0
        self.broken_off = new_excuses()  # requests that were cancelled here
        self.strikes: dict[str, tuple[int, float]] = {}  # by user, and when; the latest last
        self.wake_s = 0.0  # when the core will look at it again by itself
        self.removed = False
        self.used_at = 0  # the sequence number of the last dispatch: least recently used
        self.loaded: dict[str, float] | None = None  # model -> since when it can serve
        self.holds_all = True  # whether no model that it lists is out of memory
        self.loaded_max = 1
        self.lanes: dict[str, dict[str, Lane]] = {}  # that it lists, by model and family
        self.load_s = 0.0  # S of the swap rule, as told or measured; 0 while unknown
        self._load_is_told = False
        self._loads: deque[tuple[str, float]] = deque(maxlen=LOADS_RECENT)
        """The last loads that were measured: the model, and what its load and first run took."""
        self.loads: dict[str, Load] = {}  # whose first run has not ended, by model
        self._left_s: dict[str, float] = {}  # when a model left the memory last
        self.swap_target: str | None = None  # draining until this model can be loaded
        self.swap_victim = ""  # ... in the place of this one
        self.swap_rank = 0  # for the sake of this class
        self.shares = Shares(ranks)
        self.prefixes = PrefixCache()
        self.held: dict[Entry, None] = {}  # that wait for it, because of its cache
        self.room: CacheRoom | None = None  # in its key-value cache; None where it does not say

    def is_open(self, now_s: float) -> bool:
        """Say whether a new request may start here now, slots and health considered."""
        return (
            len(self.leases) + self.lent < self.slots
            and self.state == "online"
            and now_s >= self.rest_until_s
        )

    def would_open(self, now_s: float) -> bool:
        """Say whether a new request might start here now, were no slot lent that is not filled."""
        return (
            len(self.leases) < self.slots and self.state == "online" and now_s >= self.rest_until_s
        )

    def has_room(self) -> bool:
        """Say whether a slot is neither leased nor lent."""
        return len(self.leases) + self.lent < self.slots

    def fits(self, tokens: float) -> bool:
        """Say whether its key-value cache has room for so much more, as far as it says."""
        room = self.room
        return room is None or tokens <= room.left_tokens or not (self.leases or self.lent)

    def outlook(self, now_s: float, offline_wait_s: float) -> WaitReason | None:
        """Say why one may wait for it while it is not online; None where that is of no use."""
        if self.state == "loading":
            return "loading"
        if now_s - self.away_since_s < offline_wait_s:
            return "starting" if self.is_new else "offline"
        return None

    def has_reported(self) -> bool:
        """Say whether it is known what it has, from the node itself or from the operator."""
        return bool(self.models) or not (self.is_new or self.state == "loading")

    def score(self) -> float:
        """Return how busy it is; the lowest is preferred."""
        # `float`: compiled, a float by an int is a call of the interpreter's own arithmetic
        return GPU_SHARE * self.gpu_load + BUSY_SHARE * float(len(self.leases)) / float(self.slots)

    def take(self, entry: Entry, model: str, seq: int) -> None:
        if entry.node is not None:
            raise InvariantBroken(f"{entry.id} already holds a lease")
        self.leases[entry.id] = model
        entry.node = self
        self.used_at = seq

    def give_back(self, entry: Entry) -> None:
        if self.leases.pop(entry.id, None) is None:
            raise InvariantBroken(f"{entry.id} gave back a lease it does not hold")
        entry.node = None

    def note_end(self, user: str, event: Finished, now_s: float) -> None:
        if event.strike:
            self.strike(user, now_s)
        elif event.ok:
            self.strikes.pop(user, None)

    def strike(self, user: str, now_s: float) -> None:
        count, at_s = self.strikes.pop(user, (0, now_s))
        self.strikes[user] = (count + 1 if now_s - at_s < STRIKES_S else 1), now_s
        if len(self.strikes) > STRUCK_MAX:
            del self.strikes[next(iter(self.strikes))]

    def struck(self, now_s: float) -> frozenset[str]:
        """Return the users whose requests give way to others' here."""
        return frozenset(
            user
            for user, (count, at_s) in self.strikes.items()
            if count >= STRIKES_MAX and now_s - at_s < STRIKES_S
        )

    def may_run(self, model: str) -> bool:
        """Say whether another request of a model that does not rest here may start."""
        return model not in self.on_trial or model not in self.leases.values()

    def is_warm(self, model: str) -> bool:
        return self.loaded is None or model in self.loaded

    def note_dispatch(self, entry: Entry, model: str, now_s: float) -> float:
        """Keep track of the models in memory; return from when on this one can serve."""
        loaded = self.loaded
        if loaded is None:
            return now_s
        if model in loaded:
            if model == self.swap_victim:
                self.swap_target = None  # someone more urgent wants it still
            load = self.loads.get(model)
            if load is not None and load.entry is entry:
                del self.loads[model]  # it came back, and measures no load any more
            elif load is not None and not load.is_over:
                entry.joins_load = True
        else:
            if len(loaded) >= self.loaded_max:
                self._put_out(self.victim(), now_s)
            self.swap_target = None
            self.loads[model] = Load(entry, now_s)
            loaded[model] = now_s + self.load_s
            self._compare_models()
        return max(now_s, loaded[model])

    def _compare_models(self) -> None:
        self.holds_all = all(self.is_warm(model) for model in self.models)
        if self.holds_all:
            self.swap_target = None

    def _put_out(self, model: str, now_s: float) -> None:
        if self.loaded is not None:
            del self.loaded[model]
        self._left_s[model] = now_s
        self.loads.pop(model, None)

    def victim(self) -> str:
        """Return the model that makes room: the least wanted, an idle one, the oldest.

        One must be in memory. Once decided, it stays the same while the node drains.
        """
        loaded = self.loaded or {}
        if self.swap_target is not None and self.swap_victim in loaded:
            return self.swap_victim
        if len(loaded) == 1:
            return next(iter(loaded))
        busy = set(self.leases.values())
        return min(loaded, key=lambda one: (self._waiting_for(one), one in busy, loaded[one]))

    def _waiting_for(self, model: str) -> int:
        return sum(lane.waiting() for lane in self.lanes_of(model))

    def lanes_of(self, model: str) -> Iterable[Lane]:
        return self.lanes[model].values() if model in self.lanes else ()

    def loaded_since_s(self, model: str) -> float:
        """Return since when a model in memory can serve, or from when on it will."""
        return (self.loaded or {}).get(model, 0.0)

    def left_s(self, model: str) -> float:
        """Return when a model left the memory; 0 where it never was there."""
        return self._left_s.get(model, 0.0)

    def running(self, model: str) -> list[Entry]:
        """Return what runs here with a model."""
        entries = (one for lane in self.lanes_of(model) for one in lane.running.values())
        return [entry for entry in entries if entry.node is self]

    def drain_s(self, model: str, now_s: float) -> float:
        """Return how long a model may take to become idle, each run being of median length."""
        typical_s = self.service_s(model, 0.5) or 0.0
        ends_s = (entry.since_s + typical_s for entry in self.running(model))
        return max(0.0, max(ends_s, default=now_s) - now_s)

    def service_s(self, model: str, share: float) -> float | None:
        """Return what that share of a model's services stay below; None while unmeasured."""
        found = (lane.times.quantile_s(share) for lane in self.lanes_of(model))
        return max((one for one in found if one is not None), default=None)

    def usual_service_s(self, model: str) -> float:
        """Return a model's median service; of one unmeasured, the longest of the others', or 0."""
        own_s = self.service_s(model, 0.5)
        if own_s is not None:
            return own_s
        return max((self.service_s(other, 0.5) or 0.0 for other in self.lanes), default=0.0)

    def end_run(self, entry: Entry, service_s: float, now_s: float) -> float | None:
        """Take note of a run that ended well; return its service time, if it can be told."""
        lane = entry.queue.lane
        load = self.loads.get(lane.model)
        if load is not None:
            load.is_over = True
            if self.loaded is not None and not self._load_is_told:
                self.loaded[lane.model] = min(self.loaded[lane.model], now_s)
            if load.entry is entry:
                del self.loads[lane.model]
                return self._measure_load(lane, now_s - load.began_s)
        if entry.joins_load and not self._load_is_told:
            return None  # nobody knows for how long it waited for the load
        return service_s

    def _measure_load(self, lane: Lane, took_s: float) -> float | None:
        """Learn from a run that began with a load; return its service time, if it can be told.

        Where the node does not say how long a load takes, it is what the run took beyond a usual
        service; and once that is known, the rest of such a run tells the service time of a model
        that never runs without a load before it.
        """
        if self._load_is_told:
            return took_s - self.load_s
        before_s = self.load_s if self.usual_service_s(lane.model) > 0.0 else 0.0
        self._loads.append((lane.model, took_s))
        self.learn_load()
        if before_s == 0.0 or lane.times.mean_s() is not None:
            return None
        return took_s - before_s

    def learn_load(self) -> None:
        """Work out how long a load takes, by what usual services take as far as that is known.

        While no service is measured, all that a run took is taken for its load: too much rather
        than too little. Without a residence no run would begin with its model in memory, and none
        would ever be measured.
        """
        if self._load_is_told or not self._loads:
            return
        beyond_s = [max(0.0, took_s - self.usual_service_s(model)) for model, took_s in self._loads]
        self.load_s = sorted(beyond_s)[(len(beyond_s) - 1) // 2]

    def update(self, event: NodeChanged, now_s: float) -> None:
        """Take over what is reported, keeping what only the core knows."""
        self.state = event.state
        self.away_since_s = now_s - event.away_s
        self.is_new = event.is_new
        self.ready_at_s = None if event.ready_in_s is None else now_s + event.ready_in_s
        self.slots = max(0, event.slots)
        self.gpu_load = event.gpu_load
        self.models = event.models
        self.families = event.families
        self.on_trial = event.on_trial
        if event.kv_free_tokens < 0:
            self.room = None
        elif self.room is None or self.room.reading != event.kv_reading:
            self.room = CacheRoom(event.kv_free_tokens, event.kv_reading)
        self.loaded_max = max(1, event.loaded_max)
        self._load_is_told = event.load_s > 0.0
        if self._load_is_told:
            self.load_s = event.load_s
        if event.loaded is None:
            self.loaded = None
            self._compare_models()
            return
        # A report may be older than our last dispatch: what runs here is loaded or loading, and
        # what was reported beside it has gone where there is no room for both.
        self.loaded_max = max(self.loaded_max, len(event.loaded))
        present = dict.fromkeys((*self.leases.values(), *event.loaded))
        before = self.loaded or {}
        room = max(self.loaded_max, len(set(self.leases.values())))
        self.loaded = {model: before.get(model, now_s) for model in islice(present, room)}
        gone = dict.fromkeys((model for model in before if model not in self.loaded), now_s)
        left_s = {**self._left_s, **gone}
        self._left_s = {model: at_s for model, at_s in left_s.items() if model in event.models}
        self._compare_models()
