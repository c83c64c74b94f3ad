"""Two functions that time themselves, turn and turn about; the best of each, and their ratio."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Row: TypeAlias = dict[str, float | str | None]


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the garbage collector out of a measurement, as a server does with `gc.freeze`."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compare(
    name: str,
    ours: Callable[[], float],
    reference: Callable[[], float],
    repeats: int,
    target_us: float | None = None,
) -> Row:
    """Run both `repeats` times; each returns seconds per operation."""
    ours_s, reference_s = [], []
    for _ in range(repeats):
        ours_s.append(ours())
        reference_s.append(reference())
    return {
        "name": name,
        "ours_us": min(ours_s) * 1e6,
        "ours_median_us": sorted(ours_s)[repeats // 2] * 1e6,
        "reference_us": min(reference_s) * 1e6,
        "ratio": min(ours_s) / min(reference_s),
        "target_us": target_us,
    }
