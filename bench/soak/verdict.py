"""Whether what a soak used stayed flat, and came back to where it was.

The first quarter is left out: pools, caches and the allocator's arenas fill. Then two estimates of
the growth over half of the run must both exceed the bound: the median of the last quarter less
that of the second (no single spike, such as eight bodies of 8 MiB at once, moves it), and the
Theil-Sen slope (the median of the slopes between all pairs of samples; it stands up to 29 % of
outliers) times the time between the middles of those quarters. A leak shows in both; a late step,
such as a new arena, in only one of them or below the bound.

The bound of the memory is 16 MiB or 15 %, whichever is more: each burst with bodies of megabytes in
it may leave the allocator's high-water mark a few MiB higher, which in a run of minutes is most of
what is seen. At 20 requests a second, 16 MiB in half an hour (half of HOURS=1) are 470 bytes for
each request: less than any request that is still held would take.

Descriptors are counted without the clients that are there. What is left moves with the connections
to nodes; the bound is a quarter of what is usually open, at least 16. The strict test of
descriptors, slots and the rest is the drain: then they must be where they were before the load.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.soak.samples import Sample

MIB = 1 << 20


class Series(NamedTuple):
    """One thing that must stay flat: by how much, or by what share, it may grow."""

    name: str
    value: Callable[[Sample], float]
    bound: float
    share: float

    def points(self, samples: Sequence[Sample]) -> list[tuple[float, float]]:
        return [(one.at_s, self.value(one)) for one in samples]


SERIES = (
    Series("memory, MiB", lambda one: one.rss_bytes / MIB, 16, 0.15),
    Series("descriptors without clients", lambda one: one.fds - one.present, 16, 0.25),
    Series("slots", lambda one: one.slots, 20, 0.5),
    Series("threads", lambda one: one.threads, 20, 0.5),
    Series("sessions", lambda one: one.sessions, 20, 0.5),
    Series("tasks", lambda one: one.told.get("tasks", 0.0), 20, 0.5),
)
PAIRS_OF = 200
"""Samples that slopes are taken between; more are thinned out."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the Theil-Sen slope.

    >>> slope([(0, 1), (1, 2), (2, 3), (3, 4), (4, 100)])
    1.0
    """
    thinned = points[:: max(1, len(points) // PAIRS_OF)]
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(thinned, 2)
        if later[0] > earlier[0]
    )


def growth(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the growth between the second and the last quarter: by medians, and by the slope."""
    quarter = len(points) // 4
    second, last = points[quarter : 2 * quarter], points[3 * quarter :]
    by_median = median(value for _, value in last) - median(value for _, value in second)
    apart_s = median(at_s for at_s, _ in last) - median(at_s for at_s, _ in second)
    return by_median, slope(points[quarter:]) * apart_s


def drift(points: Sequence[tuple[float, float]], bound: float, share: float) -> float:
    """Return by how much it grew beyond doubt; 0 when it is flat."""
    grown = min(growth(points))
    usual = median(value for _, value in points)
    return grown if grown > max(bound, share * usual) else 0.0


def not_flat(samples: Sequence[Sample]) -> list[str]:
    """Return what grew during the load, in words."""
    if len(samples) < 8:
        return [f"only {len(samples)} samples: too few to judge"]
    found = [
        f"{one.name}: {grown:.1f} more over half of the run"
        for one in SERIES
        if (grown := drift(one.points(samples), one.bound, one.share))
    ]
    orphaned = samples[-1].told.get("leases_orphaned_total", 0.0)
    if orphaned:
        found.append(f"{orphaned:.0f} leases were without a live exchange")
    return found


def not_back(before: Sample, now: Sample, pooled_max: int) -> list[str]:
    """Return what has not come back to where it was before the load, in words.

    `pooled_max` is how many connections to nodes may be kept for the next request.
    """
    allowed = dict.fromkeys(("slots", "waiting", "jobs_open", "sessions", "leases"), 0.0)
    allowed["body_bytes"] = 0.0
    allowed["connections"] = before.told.get("connections", 0.0)
    allowed["tasks"] = before.told.get("tasks", 0.0)
    allowed["fds"] = before.fds + pooled_max
    found = {**msgspec.structs.asdict(now), **now.told}
    return [
        f"{name}: {found[name]:.0f}, and {limit:.0f} may be"
        for name, limit in allowed.items()
        if found.get(name, 0.0) > limit
    ]
