"""Play random fleets over many seeds, or replay one and show it.

python -m harness.fleet_simulation --seeds 500
python -m harness.fleet_simulation --seed 17
"""

from __future__ import annotations

import sys
from collections import Counter
from pprint import pformat

from forebay.testing.seeds import Played, play_by_seeds, say
from harness.fleet_simulation import FleetSimulation, failure, random_plan


def play_one(seed: int) -> Played:
    """Play one seed; if it fails, its message is kept."""
    report = FleetSimulation(random_plan(seed)).run()
    trouble = failure(report) if report.problems else ""
    return Played(seed, report.counts, Counter({"most over slots": report.overcommit_max}), trouble)


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
    sys.exit(play_by_seeds("harness.fleet_simulation", 200, play_one, replay))
