"""Play random fleets over many seeds, or replay one and show it.

python -m harness.fleet_simulation --seeds 500
python -m harness.fleet_simulation --seed 17
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pprint import pformat
from typing import NamedTuple

from forebay.testing.seeds import play_by_seeds, say
from harness.fleet_simulation import FleetSimulation, failure, random_plan

FAILURES_SHOWN = 3


class Played(NamedTuple):
    """What came of one seed."""

    seed: int
    counts: Counter[str]
    overcommit_max: int
    trouble: str


def play_one(seed: int) -> Played:
    """Play one seed; what fails is kept with its message."""
    report = FleetSimulation(random_plan(seed)).run()
    trouble = failure(report) if report.problems else ""
    return Played(seed, report.counts, report.overcommit_max, trouble)


def play_all(first: int, count: int, workers: int) -> int:
    """Play many seeds on all cores, with progress; return the exit status."""
    counts: Counter[str] = Counter()
    failed: list[Played] = []
    overcommit_max = 0
    with ProcessPoolExecutor(workers) as pool:
        for number, played in enumerate(pool.map(play_one, range(first, first + count)), 1):
            counts.update(played.counts)
            overcommit_max = max(overcommit_max, played.overcommit_max)
            if played.trouble:
                failed.append(played)
            say(f"\r{number}/{count} seeds, {len(failed)} failed", end="")
    say("")
    for played in failed[:FAILURES_SHOWN]:
        say(played.trouble, end="\n\n")
    rows = [*counts.most_common(), ("most over slots", overcommit_max), ("failed", len(failed))]
    say("\n".join(f"{name:<26}{figure:>10}" for name, figure in rows))
    if failed:
        say("failed seeds: " + " ".join(str(played.seed) for played in failed))
    return 1 if failed else 0


def replay(seed: int) -> int:
    """Play one seed, showing its world and the end of its trace; return the exit status."""
    plan = random_plan(seed)
    say(pformat(plan, width=100))
    report = FleetSimulation(plan).run()
    if report.problems:
        say(failure(report))
        return 1
    say("\n".join(report.trace))
    say(pformat(dict(report.counts)))
    return 0


if __name__ == "__main__":
    sys.exit(play_by_seeds("harness.fleet_simulation", 200, play_all, replay))
