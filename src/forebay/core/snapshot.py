"""A snapshot of the queue as one frozen value: aggregates only, no user, no id, no prompt.

Everything in it is counted as it happens, so that making one costs a walk over nodes and lanes
(both are configuration, not load) and never over what waits.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

RECENT: Final = 100
"""How many of the last measurements an average covers; DESIGN says 100."""


class NodeView(Struct, frozen=True, gc=False):
    """One node, as a dashboard shows it."""

    name: str
    state: str
    slots: int
    in_flight: int
    gpu_load: float
    models: tuple[str, ...]
    loaded: tuple[str, ...] | None
    speed: float | None = None
    """1 / the mean `x` of its lanes: 1.0 is usual, higher is faster; None was not measured."""
    measured_s_ago: float | None = None
    """When its speed was measured last."""
    slots_reason: str = ""
    """Why it has so many slots, where that was found; else empty."""


class LaneView(Struct, frozen=True, gc=False):
    """One model in one family: what waits, what runs, how long a new `normal` request would wait.

    The wait is 0 while a slot is free, None while no node is up or nothing has been measured.
    """

    model: str
    family: str
    waiting: int
    running: int
    slots: int
    service_s: float | None
    p50_s: float | None
    p90_s: float | None


class Totals(Struct, frozen=True, gc=False):
    """What has happened since the start; each only grows."""

    accepted: int = 0
    enqueued: int = 0
    served: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
    returned: int = 0
    swaps: int = 0
    rate_waits: int = 0
    """Requests that had to wait for the rate of their key."""
    rejected: dict[str, int] = {}
    prefix_tokens: int = 0
    """Of prompts that several nodes could serve."""
    prefix_hit_tokens: int = 0
    """Those of them that were probably cached where they ran."""
    prefix_saved_s: float = 0.0
    """What computing those would have taken, going by what prompts take."""

    def refused(self, codes: Iterable[str]) -> int:
        """Return how many were refused with one of these codes."""
        return sum(self.rejected.get(code, 0) for code in codes)


class Snapshot(Struct, frozen=True, tag=True, gc=False):
    """The answer to `Observed`."""

    waiting: int
    running: int
    waiting_bytes: int
    waiting_jobs: int
    running_jobs: int
    max_size: int
    by_priority: dict[str, int]
    average_wait_s: float | None
    average_service_s: float | None
    totals: Totals
    nodes: tuple[NodeView, ...]
    lanes: tuple[LaneView, ...]
    """Those with something to do, and some of the idle ones."""


def mean(values: deque[float]) -> float | None:
    """Return the mean, or None when there is nothing yet."""
    return sum(values) / len(values) if values else None
