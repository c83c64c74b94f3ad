"""`make bench`: run everything, print ratios, keep the raw results in bench/results/core.json."""

import json
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.core import request_queue, scheduler
from bench.core.comparison import Row

RESULTS = Path(__file__).parent.parent / "results" / "core.json"
REPEATS = 15


def table(title: str, reference: str, rows: list[Row]) -> Table:
    drawn = Table(title=title, title_justify="left")
    drawn.add_column("what")
    for heading in ("ours, best", "median", reference, "ratio", "target"):
        drawn.add_column(heading, justify="right")
    for row in rows:
        target = row.get("target_us")
        drawn.add_row(
            str(row["name"]),
            f"{row['ours_us']:.2f} µs",
            f"{row.get('ours_median_us') or 0:.2f} µs",
            f"{row['reference_us']:.2f} µs",
            f"{row['ratio']:.1f}",
            f"{target:.0f} µs" if target else str(row.get("target", "")),
        )
    return drawn


def main() -> None:
    console = Console()
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    core = scheduler.measure(repeats)
    console.print(table("The scheduler core, per operation", "heapq", core))
    grown = {row["name"]: float(row["ours_us"] or 0) for row in core}
    small, large = (
        next(
            us
            for name, us in grown.items()
            if f" {depth} waiting" in str(name) and "enq" in str(name)
        )
        for depth in ("1,000", "1,000,000")
    )
    console.print(
        f"enqueue + dispatch at 10^6 waiting costs {large / small:.2f} x that at 10^3 (at most 4)"
    )
    queue = request_queue.measure(repeats)
    console.print(table("RequestQueue, per operation", "PriorityQueue", queue))
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    RESULTS.write_text(
        json.dumps({"machine": machine, "repeats": repeats, "core": core, "queue": queue}, indent=1)
        + "\n"
    )


main()
