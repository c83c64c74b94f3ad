"""`python -m bench.guard [--quick]`: what the guard adds; raw in bench/results/guard.json."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.gateway import unary
from bench.gateway.gateways import Gateway, Place
from bench.gateway.programs import LOAD_CORE
from bench.gateway.stage import Bench, compile_tools, running, unary_node
from bench.output import RESULTS, console, keep, table

TARGET_MS = 0.2
ROUNDS, SECONDS = 20, 1.0


def guard(place: Place) -> list[str]:
    command = Path(sys.executable).parent / "forebay"
    return [str(command), "node", "--port", str(place.port), "--backend", place.node_url]


def main() -> None:
    os.sched_setaffinity(0, {LOAD_CORE})
    is_quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory(prefix="bench-guard-") as folder:
        bench = Bench(Path(folder), Path(folder), is_quick, [Gateway("guarded", guard)])
        compile_tools(bench.folder)
        with unary_node(bench) as node, running(bench, bench.gateways, node, slots=1) as targets:
            if bench.refused:
                sys.exit(f"the guard {bench.refused['guarded']}")
            ways = {"direct": node, "guarded": targets[0]}
            for target in ways.values():
                unary.wrk(bench, target, SECONDS, 1)  # warm, and not counted
            rounds = [
                {name: unary.wrk(bench, target, SECONDS, 1) for name, target in ways.items()}
                for _ in range(5 if is_quick else ROUNDS)
            ]
    shown = table("Chat calls of 650 bytes, one connection, loopback", "way", "p50, ms", "p99, ms")
    for name in ways:
        shown.add_row(name, *(
            f"{median(one[name][key] for one in rounds):.3f}" for key in ("p50_ms", "p99_ms")
        ))  # fmt: skip
    added_ms = median(one["guarded"]["p50_ms"] - one["direct"]["p50_ms"] for one in rounds)
    shown.add_row("the guard adds", f"{added_ms:.3f}", f"target: under {TARGET_MS}")
    console().print(shown)
    keep(RESULTS / "guard.json", {"added_p50_ms": added_ms, "rounds": rounds})


if __name__ == "__main__":
    main()
