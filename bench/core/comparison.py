"""Two functions that time themselves, turn and turn about; the best of each, and their ratio."""

import gc
from collections.abc import Callable
from typing import TypeAlias

Row: TypeAlias = dict[str, float | str | None]


def compare(
    name: str,
    ours: Callable[[], float],
    reference: Callable[[], float],
    repeats: int,
    target: str = "",
) -> Row:
    """Run both `repeats` times; each returns seconds per operation.

    The garbage collector is kept out of the rounds: when it runs is not the code's doing.
    """
    ours_s: list[float] = []
    reference_s: list[float] = []
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(repeats):
            ours_s.append(ours())
            reference_s.append(reference())
    finally:
        gc.enable()
        gc.unfreeze()
    return {
        "name": name,
        "ours_us": min(ours_s) * 1e6,
        "ours_median_us": sorted(ours_s)[repeats // 2] * 1e6,
        "reference_us": min(reference_s) * 1e6,
        "ratio": min(ours_s) / min(reference_s),
        "target": target,
    }
