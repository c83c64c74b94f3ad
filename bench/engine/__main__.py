"""Compare schedulers of transformers' continuous batching: `python -m bench.engine --help`.

One process, the schedulers in turn, on the same arrivals. Random weights: what a
model says is noise, what it costs is not.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import transformers

from bench.engine.runs import ENGINES, Arrival, Options, Result, make_model, read_trace, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main() -> None:
    """Run the load that was asked for and write what was measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="JSON lines with prompt hashes")
    parser.add_argument("--size", default="1b", choices=["tiny", "1b", "8b"])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--cap", type=int, default=16_384, help="most tokens of a prompt")
    parser.add_argument("--loads", default="0.7,1.0,1.3")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--at-once", type=int, default=256, help="requests that run at once")
    parser.add_argument("--overlap", action="store_true", help="prepare a step while one runs")
    parser.add_argument("--graphs", action="store_true", help="use CUDA graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = make_model(args.size)
    options = Options(
        args.batch_tokens, graphs=args.graphs, overlap=args.overlap, requests_max=args.at_once
    )
    if not torch.cuda.is_available():
        options.blocks = 512
    document: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "parameters": sum(p.numel() for p in model.parameters()),
        "arguments": {name: str(value) for name, value in vars(args).items()},
    }
    trace = read_trace(args.trace, args.requests, args.cap, args.seed)
    run(model, "fifo", [replace(one, at_s=0.0) for one in trace[:8]], options, 60)  # loads kernels
    for rows in loads(model, trace, options, [float(load) for load in args.loads.split(",")]):
        document["rows"] = rows  # a run takes minutes
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def loads(
    model: Any, trace: Sequence[Arrival], options: Options, shares: Sequence[float]
) -> Iterator[list[dict[str, Any]]]:
    """Compare at parts and multiples of what the engine can do; yields all rows after each."""
    burst = [replace(arrival, at_s=0.0) for arrival in trace]
    results, figures = run(model, "fifo", burst, options, 300)
    capacity = full_rate(results, options.requests_max)
    rows = [{"load": "burst", "scheduler": "fifo", "capacity_per_s": capacity, **figures}]
    print("burst", capacity, figures, flush=True)
    span_s = trace[-1].at_s - trace[0].at_s
    for load in shares:
        scale = len(trace) / (load * capacity) / span_s
        arrivals = [
            replace(arrival, at_s=(arrival.at_s - trace[0].at_s) * scale) for arrival in trace
        ]
        for scheduler in ENGINES:
            results, figures = run(model, scheduler, arrivals, options, 300)
            row = {"load": load, "scheduler": scheduler, **figures, "first_token": firsts(results)}
            print(row, flush=True)
            rows.append(row | {"results": [asdict(result) for result in results]})
            yield rows


def full_rate(results: Sequence[Result], at_once: int) -> float:
    """Return the requests a second of a burst for as long as all places of the engine are taken.

    Then as many are under way as run at once, on average half done. What comes after, few long
    answers, one token a step, says nothing about capacity.
    """
    ends = sorted(result.end_s for result in results if result.end_s is not None)
    ended = max(len(ends) - at_once, len(ends) // 2)
    return (ended + (len(ends) - ended) / 2) / ends[ended - 1]


def firsts(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return the times to the first token by priority."""
    rows = {}
    for priority in ("high", "low"):
        times = sorted(
            r.first_s for r in results if r.priority == priority and r.first_s is not None
        )
        if times:
            p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
            rows[priority] = {"n": len(times), "p50": median(times), "p95": p95, "max": times[-1]}
    return rows


if __name__ == "__main__":
    main()
