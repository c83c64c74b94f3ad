"""`python -m bench.fleet`: what several gateways cost; raw in bench/results/fleet.json."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench.fleet import depth, failover, posts, report, store_use, throughput
from bench.gateway.programs import LOAD_CORE
from bench.gateway.stage import Bench, compile_tools
from bench.output import RESULTS, console, keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

BENCH = Path(__file__).parent.parent
DEPTHS = (1, 1_000, 10_000, 100_000)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts")
    parser.add_argument("--plain", action="store_true", help="nothing compiled")
    parser.add_argument("--out", type=Path, default=RESULTS / "fleet.json")
    return parser.parse_args()


def run_posts(options: argparse.Namespace, screen: Console) -> object:
    found = uvloop.run(posts.measure(10 if options.quick else 40))
    screen.print(report.posts(found))
    return found


def run_store(options: argparse.Namespace, screen: Console) -> object:
    found = uvloop.run(store_use.measure(2_000 if options.quick else 10_000))
    screen.print(report.store(found))
    idle = uvloop.run(store_use.idle(2, 5.0))
    screen.print(f"while nothing happens: {idle['commands']:.1f} commands a second for 2 replicas")
    return {"requests": found, "idle_a_second": idle}


def run_failover(options: argparse.Namespace, screen: Console) -> object:
    rounds = 2 if options.quick else 8
    found: dict[str, list[float]] = {}
    for name, kill in (("killed", True), ("told to stop", False)):
        found[name] = uvloop.run(failover.measure(rounds, 2.0, kill=kill))
    screen.print(report.failover(found))
    return found


def run_depth(options: argparse.Namespace, screen: Console) -> object:
    found = []
    for waiting in DEPTHS[:3] if options.quick else DEPTHS:
        one: dict[str, Any] = uvloop.run(depth.measure(waiting, 100 if options.quick else 300))
        times = one.pop("grants_s")
        one["p50_ms"] = 1e3 * report.quantile(times, 0.5)
        one["p99_ms"] = 1e3 * report.quantile(times, 0.99)
        found.append(one)
    screen.print(report.depth(found))
    return found


def run_throughput(options: argparse.Namespace, screen: Console) -> object:
    rounds, seconds = (2, 1.0) if options.quick else (5, 2.0)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {LOAD_CORE})  # the stores inherit it
    found: dict[str, object] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
            bench = Bench(Path(folder), Path(folder), options.quick, ())
            compile_tools(bench.folder)
            kinds = [throughput.fleets((1, 2, 4), compiled=False)]
            if not options.plain:
                tool = BENCH.parent / "tools" / "compile.py"
                subprocess.run([sys.executable, str(tool)], check=True)
                kinds.append(throughput.fleets((1, 2, 4), compiled=True))
            for of in kinds:
                measured = throughput.measure(bench, of, rounds, seconds)
                screen.print(report.throughput(measured))
                found["compiled" if of[0].compiled else "plain"] = measured
    finally:
        os.sched_setaffinity(0, allowed)
    return found


PARTS: dict[str, Callable[[argparse.Namespace, Console], object]] = {
    "posts": run_posts,
    "store": run_store,
    "failover": run_failover,
    "depth": run_depth,
    "throughput": run_throughput,
}


def main() -> None:
    options = arguments()
    screen = console()
    results: dict[str, object] = {}
    if options.only and options.out.exists():
        results = json.loads(options.out.read_text())["results"]  # the others stay as they were
    for name in options.only or PARTS:
        print(f"{name}...", file=sys.stderr, flush=True)
        began = time.monotonic()
        loads = [round(os.getloadavg()[0], 1)]
        measured = PARTS[name](options, screen)
        loads.append(round(os.getloadavg()[0], 1))
        took_s = round(time.monotonic() - began, 1)
        results[name] = {"quick": options.quick, "seconds": took_s, "load": loads, "of": measured}
        keep(options.out, results)  # a run that is broken off was not in vain


if __name__ == "__main__":
    main()
