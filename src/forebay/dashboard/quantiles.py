"""Quantiles read off histogram buckets.

A request adds one to a bucket and nothing is kept of it, so the cost is constant however many there
are. The price is precision: a quantile is somewhere inside its bucket, and is taken to lie where it
would if the values there were spread evenly (linear interpolation, as Prometheus does it). Above
the last bound nothing is known but that bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of what was counted lies; None where nothing was.

    `counts` has one entry more than `bounds`: what lay above the last. What lies in the first
    bucket did not wait at all, so 0 is said of it.

    >>> quantile([0, 10, 0], (1.0, 2.0), 0.5)
    1.5
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted, seen = share * total, 0.0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            if index == 0:
                return 0.0
            if index == len(bounds):
                break
            low = bounds[index - 1]
            return low + (bounds[index] - low) * (wanted - seen) / count
        seen += count
    return bounds[-1]
