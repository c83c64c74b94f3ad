"""What the core knows of a node: its slots, what runs there, which models are in memory.

A lease is one entry in `Node.leases`: taken by `take`, given back by `give_back`, and both are
called from one place each. Nothing counts up and down, so nothing can drift: the number of leases
is the size of a dict. A lowered slot count drains: no lease is ever taken away.
"""

from __future__ import annotations

from itertools import islice
from math import exp
from typing import TYPE_CHECKING, Final

from forebay.core.shares import Shares
from forebay.errors import InvariantBroken

if TYPE_CHECKING:
    from forebay.core.actions import WaitReason
    from forebay.core.entries import Entry
    from forebay.core.events import NodeChanged

GPU_SHARE: Final = 0.3
"""Weight of the GPU's load in the choice of a node; specification 1."""
BUSY_SHARE: Final = 0.7
"""Weight of the slots in use; specification 1."""
LOAD_MEMORY_S: Final = 300.0
"""Time constant of the measured load, rho in the swap rule: a few long answers, not one."""


class Node:
    """One backend server."""

    __slots__ = (
        "_busy", "_busy_at_s", "away_since_s", "families", "gpu_load", "is_new", "leases", "lent",
        "load_s", "loaded", "loaded_max", "models", "name", "on_trial", "ready_at_s", "removed",
        "rest_until_s", "seq", "shares", "slots", "state", "swap_rank", "swap_target", "used_at",
        "wake_s",
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
        self.wake_s = 0.0  # when the core will look at it again by itself
        self.removed = False
        self.used_at = 0  # the sequence number of the last dispatch: least recently used
        self.loaded: dict[str, float] | None = None  # model -> since when it can serve
        self.loaded_max = 1
        self.load_s = 0.0
        self.swap_target: str | None = None  # draining until this model can be loaded
        self.swap_rank = 0  # for the sake of this class
        self.shares = Shares(ranks)
        self._busy = 0.0  # exponentially averaged share of slots in use
        self._busy_at_s = 0.0

    def is_open(self, now_s: float) -> bool:
        """Say whether a new request may start here now, slots and health considered."""
        return (
            len(self.leases) + self.lent < self.slots
            and self.state == "online"
            and now_s >= self.rest_until_s
        )

    def has_room(self) -> bool:
        """Say whether a slot is neither leased nor lent."""
        return len(self.leases) + self.lent < self.slots

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

    def may_run(self, model: str) -> bool:
        """Say whether another request of a model that does not rest here may start."""
        return model not in self.on_trial or model not in self.leases.values()

    def is_warm(self, model: str) -> bool:
        return self.loaded is None or model in self.loaded

    def measure_load(self, now_s: float) -> None:
        """Fold the time since the last call into the load; call it before leases change."""
        elapsed_s = now_s - self._busy_at_s
        if elapsed_s > 0.0:
            fresh = 1.0 - exp(-elapsed_s / LOAD_MEMORY_S)
            busy = min(1.0, len(self.leases) / self.slots) if self.slots else 1.0
            self._busy += fresh * (busy - self._busy)
            self._busy_at_s = now_s

    def load(self) -> float:
        """Return rho, the measured share of slots in use."""
        return self._busy

    def note_dispatch(self, model: str, now_s: float) -> bool:
        """Keep track of the models in memory; return whether this dispatch loads one."""
        self.swap_target = None
        if self.loaded is None or model in self.loaded:
            return False
        if len(self.loaded) >= self.loaded_max:
            del self.loaded[self.victim(self.loaded)]
        self.loaded[model] = now_s + self.load_s
        return True

    def victim(self, loaded: dict[str, float]) -> str:
        """Return the model that makes room: an idle one, the longest in memory first."""
        busy = set(self.leases.values())
        return min(loaded, key=lambda model: (model in busy, loaded[model]))

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
        self.loaded_max = max(1, event.loaded_max)
        self.load_s = event.load_s
        if event.loaded is None:
            self.loaded = None
            return
        # A report may be older than our last dispatch: what runs here is loaded or loading, and
        # what was reported beside it has gone where there is no room for both.
        self.loaded_max = max(self.loaded_max, len(event.loaded))
        present = dict.fromkeys((*self.leases.values(), *event.loaded))
        before = self.loaded or {}
        room = max(self.loaded_max, len(set(self.leases.values())))
        self.loaded = {model: before.get(model, now_s) for model in islice(present, room)}
