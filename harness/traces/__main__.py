"""Replay traces in all modes and at several loads; print what was aimed at and what was measured.

python -m harness.traces DIRECTORY
python -m harness.traces DIRECTORY --seeds 7 8 9 --modes fifo tokens
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from forebay.testing.seeds import say
from harness.traces.calls import ServeGen, Traffic, draw_calls, read_calls
from harness.traces.replay import LOSING, MIXED, QUIET, Fairness, Replay, Verdict, judge
from harness.traces.targets import LOADS, shortfalls, target

if TYPE_CHECKING:
    from harness.traces.calls import Call

MODES: tuple[Fairness, ...] = ("fifo", "round_robin", "tokens")
TROUBLES = {"": QUIET, "mix": MIXED, "lost": LOSING, "both": MIXED._replace(node_lost=True)}
SERVEGEN = "servegen"
GENERATED = "generated"
HOUR_S = 3600.0
SERVEGEN_PER_S = 4.0
SPARSE = ("code", "synthetic")
"""In the names of traces that are short or sparse, and therefore harder."""


class Job(NamedTuple):
    """One replay."""

    directory: Path
    trace: str
    seed: int
    load: float
    fairness: Fairness
    trouble: str


def find_traces(directory: Path) -> list[str]:
    """Return the traces in a directory; ServeGen's two files are one, another is drawn."""
    names = sorted(
        path.name
        for path in directory.iterdir()
        if path.suffix in (".csv", ".jsonl") and SERVEGEN not in path.name
    )
    if len(list(directory.glob(f"{SERVEGEN}*.csv"))) == 2:
        names.append(SERVEGEN)
    return [*names, GENERATED]


def read_trace(directory: Path, trace: str, seed: int) -> list[Call]:
    """Return the calls of one trace; ServeGen's are of another hour with each seed."""
    rng = Random(seed)
    if trace == GENERATED:
        return draw_calls(Traffic(), rng)
    if trace == SERVEGEN:
        lengths, rates = sorted(directory.glob(f"{SERVEGEN}*.csv"))
        return ServeGen(rates, lengths).draw(10 * seed * HOUR_S, HOUR_S, SERVEGEN_PER_S, rng)
    return read_calls(directory / trace, rng)


def play(job: Job) -> tuple[Job, Verdict]:
    """Replay one trace and judge it."""
    calls = read_trace(job.directory, job.trace, job.seed)
    replay = Replay(calls, job.load, job.fairness, TROUBLES[job.trouble], seed=job.seed)
    return job, judge(replay.run())


def allowance(job: Job) -> float:
    """Return by how much a replay may miss its targets."""
    sparse = any(word in job.trace for word in SPARSE)
    return 0.1 * sparse + 0.15 * bool(job.trouble)


def row(job: Job, verdict: Verdict) -> str:
    """Describe one replay in a line."""
    fifo = job.fairness == "fifo"
    measured = (
        f"{verdict.within_2:4.0%} /{verdict.within_125:4.0%}" if fifo else f"{verdict.near:4.0%}"
    )
    thirds = " ".join(f"{part:.0%}" for part in verdict.thirds)
    missed = ", ".join(shortfalls(verdict, job.fairness, job.load, allowance(job)))
    return (
        f"{job.trace[:28]:<28} {job.trouble:<4} {job.fairness:<11} {job.load:<4} "
        f"{target(job.fairness, job.load, allowance(job)):>10} {measured:>11}  "
        f"p90 {verdict.covered:4.0%} [{thirds}] {verdict.width:5.2f} {verdict.largest:5.2f}  "
        f"{missed}"
    )


def main() -> int:
    parser = ArgumentParser(prog="make traces", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[7])
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--modes", choices=MODES, nargs="+", default=MODES)
    parser.add_argument("--troubles", choices=[*TROUBLES], nargs="+", default=[*TROUBLES])
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    jobs = [
        Job(asked.directory, trace, seed, load, mode, trouble)
        for trace in find_traces(asked.directory)
        for seed in asked.seeds
        for trouble in asked.troubles
        for mode in asked.modes
        for load in asked.loads
    ]
    say(f"{'trace':<28} {'':<4} {'mode':<11} load {'target':>10} {'measured':>11}  covered, width")
    missed = 0
    with ProcessPoolExecutor(asked.workers) as pool:
        for job, verdict in pool.map(play, jobs):
            say(row(job, verdict))
            missed += bool(shortfalls(verdict, job.fairness, job.load, allowance(job)))
    say(f"{len(jobs)} replays, {missed} miss a target")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
