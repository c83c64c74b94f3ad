"""`python -m bench.core`: run everything, print ratios, keep the raw results of this build.

They go to `bench/results/core.json`, of the compiled build (`PYTHONPATH=build/compiled:.`) to
`core_compiled.json`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.core import request_queue, scheduler
from bench.output import RESULTS, console, keep, table
from forebay.build import BUILD

if TYPE_CHECKING:
    from rich.table import Table

    from bench.core.comparison import Row


REPEATS = 40


def compared(title: str, reference: str, rows: list[Row]) -> Table:
    drawn = table(title, "what", "best, µs", "median", reference, "ratio", "target")
    for row in rows:
        times = (f"{row[key]:.2f}" for key in ("ours_us", "ours_median_us", "reference_us"))
        drawn.add_row(str(row["name"]), *times, f"{row['ratio']:.1f}", str(row["target"]))
    return drawn


def growth(rows: list[Row]) -> float:
    """Return what enqueue + dispatch costs at 10^6 waiting over what it costs at 10^3."""
    costs = {
        depth: float(str(row["ours_us"]))
        for row in rows
        for depth in ("1,000", "1,000,000")
        if str(row["name"]).startswith(f"enqueue + dispatch, {depth} waiting")
    }
    return costs["1,000,000"] / costs["1,000"]


def main() -> None:
    screen = console()
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    core = scheduler.measure(repeats)
    screen.print(compared("The scheduler core, per operation", "heapq", core))
    screen.print(f"enqueue + dispatch: 10^6 waiting cost {growth(core):.2f} x 10^3 (target 4 x)\n")
    queue = request_queue.measure(repeats)
    screen.print(compared("RequestQueue, per operation", "PriorityQueue", queue))
    path = RESULTS / ("core_compiled.json" if BUILD == "compiled" else "core.json")
    keep(path, {"build": BUILD, "repeats": repeats, "core": core, "queue": queue})


main()
