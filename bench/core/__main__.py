"""`python -m bench.core`: run everything, print ratios, keep the raw results of this build.

They go to `bench/results/core.json`, of the compiled build (`PYTHONPATH=build/compiled:.`) to
`core_compiled.json`.
"""

import json
import platform
import sys
from multiprocessing import cpu_count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.core import request_queue, scheduler
from bench.core.comparison import Row
from forebay.build import BUILD

RESULTS = Path(__file__).parent.parent / "results"
REPEATS = 40


def table(title: str, reference: str, rows: list[Row]) -> Table:
    drawn = Table(title=title, title_justify="left")
    drawn.add_column("what", min_width=34)
    for heading in ("best, µs", "median", reference, "ratio", "target"):
        drawn.add_column(heading, justify="right", no_wrap=True)
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
    console = Console()
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    core = scheduler.measure(repeats)
    console.print(table("The scheduler core, per operation", "heapq", core))
    console.print(f"enqueue + dispatch: 10^6 waiting cost {growth(core):.2f} x 10^3 (target 4 x)\n")
    queue = request_queue.measure(repeats)
    console.print(table("RequestQueue, per operation", "PriorityQueue", queue))
    path = RESULTS / ("core_compiled.json" if BUILD == "compiled" else "core.json")
    machine = {
        "build": BUILD,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": cpu_count(),
    }
    raw = {"machine": machine, "repeats": repeats, "core": core, "queue": queue}
    path.write_text(json.dumps(raw, indent=1) + "\n")
    console.print(f"raw results: bench/results/{path.name}")


main()
