"""Compare schedulers of transformers' continuous batching: `python -m bench.engine --help`.

All parts run in one process, the schedulers in turn, on the same arrivals. Random weights: what a
model says is noise, what it costs is not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import transformers

from bench.engine.runs import VOCABULARY, Arrival, Options, Result, make_model, read_trace, run
from forebay.batching import Priority

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEDULERS = ("fifo", "forebay")


def main() -> None:
    """Run the parts that were asked for and write what was measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="JSON lines with prompt hashes")
    parser.add_argument("--size", default="1b", choices=["tiny", "1b", "8b"])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--cap", type=int, default=16_384, help="most tokens of a prompt")
    parser.add_argument("--loads", default="0.7,1.0,1.3")
    parser.add_argument("--parts", default="tune,loads,fair,oversize,cancel")
    parser.add_argument("--cancels", type=int, default=10_000, help="requests of the part cancel")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--at-once", type=int, default=256, help="requests that run at once")
    parser.add_argument("--overlap", action="store_true", help="prepare a step while one runs")
    parser.add_argument("--graphs", action="store_true", help="use CUDA graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = make_model(args.size)
    document: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "size": args.size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "arguments": {name: str(value) for name, value in vars(args).items()},
        "parts": {},
    }
    options = Options(
        args.batch_tokens, graphs=args.graphs, overlap=args.overlap, requests_max=args.at_once
    )
    if not torch.cuda.is_available():
        options.blocks = 512
    trace = read_trace(args.trace, args.requests, args.cap, args.seed)
    for part in args.parts.split(","):
        begin_s = time.perf_counter()

        def save(result: Any, part: str = part) -> None:
            document["parts"][part] = result
            args.out.write_text(json.dumps(document, indent=1) + "\n")

        args.save = save
        result, options = PARTS[part](model, trace, options, args)
        save(result)
        print(part, f"{time.perf_counter() - begin_s:.0f} s", flush=True)


def tune(model: Any, trace: Sequence[Arrival], options: Options, args: Any) -> tuple[Any, Options]:
    """Try one setting after another on both schedulers: keep what is quickest for transformers'."""
    arrivals = [replace(arrival, at_s=0.0) for arrival in trace[: len(trace) // 4]]
    run(model, "fifo", arrivals[:8], options, 60)  # kernels are loaded at the first use
    rows = []
    quickest, best = 0.0, options
    for candidate in (
        replace(options, overlap=False, graphs=False),
        replace(options, overlap=True, graphs=False),
        replace(options, overlap=True, graphs=True),
        replace(options, overlap=True, graphs=True, batch_tokens=options.batch_tokens * 2),
        replace(options, overlap=True, graphs=True, batch_tokens=options.batch_tokens // 2),
        replace(options, overlap=True, graphs=False, attention="sdpa"),
    ):
        for scheduler in SCHEDULERS:
            row = {
                "scheduler": scheduler,
                "attention": candidate.attention,
                "batch_tokens": candidate.batch_tokens,
                "overlap": candidate.overlap,
                "graphs": candidate.graphs,
                **_tried(model, scheduler, arrivals, candidate),
            }
            print(" tune", row, flush=True)
            rows.append(row)
            args.save(rows)
            if scheduler == "fifo" and not row["failed"] and row["tokens_per_s"] > quickest:
                quickest, best = row["tokens_per_s"], candidate
    return rows, best


def _tried(
    model: Any, scheduler: str, arrivals: Sequence[Arrival], options: Options
) -> dict[str, Any]:
    try:
        return run(model, scheduler, arrivals, options, 60)[1]
    except Exception as error:
        return {"failed": len(arrivals), "error": f"{type(error).__name__}: {error}"[:300]}


def loads(model: Any, trace: Sequence[Arrival], options: Options, args: Any) -> tuple[Any, Options]:
    """Compare at parts and multiples of what the engine can do."""
    burst = [replace(arrival, at_s=0.0) for arrival in trace]
    results, figures = run(model, "fifo", burst, options, 300)
    capacity = full_rate(results, options.requests_max)
    rows: list[dict[str, Any]] = [{"load": "burst", "scheduler": "fifo", **figures}]
    print(" burst", capacity, figures, flush=True)
    span_s = trace[-1].at_s - trace[0].at_s
    for load in map(float, args.loads.split(",")):
        scale = len(trace) / (load * capacity) / span_s
        arrivals = [
            replace(arrival, at_s=(arrival.at_s - trace[0].at_s) * scale) for arrival in trace
        ]
        for scheduler in SCHEDULERS:
            results, figures = run(model, scheduler, arrivals, options, 300)
            row = {"load": load, "scheduler": scheduler, **figures, "first_token": firsts(results)}
            print(" load", row, flush=True)
            rows.append(row | {"results": [asdict(result) for result in results]})
            args.save({"capacity_per_s": capacity, "rows": rows})  # a run takes minutes
    return {"capacity_per_s": capacity, "rows": rows}, options


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


def fair(model: Any, trace: Sequence[Arrival], options: Options, args: Any) -> tuple[Any, Options]:
    """Two users, one with ten times the requests of the other: what each has had, at its worst."""
    options_fair = replace(options, fairness="round_robin", draws=[])
    arrivals = [
        replace(
            arrival, at_s=0.0, priority=Priority.NORMAL, user="small" if n % 11 == 10 else "large"
        )
        for n, arrival in enumerate(trace[: min(len(trace), 220)])
    ]
    _, figures = run(model, "forebay", arrivals, options_fair, 300)
    left = Counter(arrival.user for arrival in arrivals)
    had, largest, worst = Counter[str](), Counter[str](), 0
    for user, size in options_fair.draws:
        largest[user] = max(largest[user], size)
    for user, size in options_fair.draws:
        if min(left.values()) <= 0:
            break
        had[user] += size
        left[user] -= 1
        if min(left.values()) > 0:
            worst = max(worst, abs(had["small"] - had["large"]))
    row = {"worst_difference_blocks": worst, "bound_blocks": sum(largest.values()), **figures}
    print(" fair", row, flush=True)
    return row, options


def oversize(
    model: Any, trace: Sequence[Arrival], options: Options, args: Any
) -> tuple[Any, Options]:
    """One request larger than the cache among twenty others."""
    block = 256 if torch.cuda.is_available() else 16
    small = replace(options, blocks=64)
    chance = Random(1)
    arrivals = [
        Arrival(f"r{n}", 0.01 * n, [chance.randrange(1, VOCABULARY) for _ in range(4 * block)], 32)
        for n in range(20)
    ]
    large = Arrival("large", 0.1, [7] * (100 * block), 32)
    rows = {}
    for scheduler in SCHEDULERS:
        results, figures = run(model, scheduler, [*arrivals, large], small, 30)
        errors = Counter(result.error[:120] for result in results if result.error)
        rows[scheduler] = figures | {"errors": dict(errors)}
        print(" oversize", scheduler, rows[scheduler], flush=True)
    return rows, options


def cancel(
    model: Any, trace: Sequence[Arrival], options: Options, args: Any
) -> tuple[Any, Options]:
    """Thousands of short requests, every fifth of them cancelled at some time; count the blocks."""
    chance = Random(2)
    arrivals = [
        Arrival(
            f"r{n}",
            0.001 * n,
            [chance.randrange(1, VOCABULARY) for _ in range(chance.randrange(16, 256))],
            chance.randrange(4, 64),
            chance.choice(list(Priority)),
        )
        for n in range(args.cancels)
    ]
    leaving = {a.id: chance.uniform(0.0, 5.0) for a in arrivals if chance.random() < 0.2}
    results, figures = run(model, "forebay", arrivals, replace(options, leaving=leaving), 300)
    row = figures | {
        "asked_to_cancel": len(leaving),
        "errors": dict(Counter(result.error.split(":")[0] for result in results if result.error)),
    }
    print(" cancel", row, flush=True)
    return row, options


PARTS = {"tune": tune, "loads": loads, "fair": fair, "oversize": oversize, "cancel": cancel}

if __name__ == "__main__":
    main()
