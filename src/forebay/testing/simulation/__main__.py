"""Play random scenarios over many seeds, or replay one and show it.

python -m forebay.testing.simulation --seeds 2000
python -m forebay.testing.simulation --seed 17
"""

from __future__ import annotations

import sys
from collections import Counter
from pprint import pformat

from forebay.testing.seeds import Played, play_by_seeds, say
from forebay.testing.simulation import Simulation, random_scenario

REPEAT_EVERY = 20
"""Every so many seeds one is played twice, to see that it gives the same actions."""


def play(seed: int) -> Played:
    """Play one seed; if it fails, its message is kept."""
    scenario = random_scenario(seed)
    try:
        report = Simulation(scenario, seed).run()
        if seed % REPEAT_EVERY == 0:
            again = Simulation(scenario, seed).run()
            assert again.digest == report.digest, f"replay with: {scenario.name}: other actions"
    except AssertionError as error:
        return Played(seed, Counter(), Counter(), str(error))
    counts = {"steps checked": report.steps, "requests and jobs": len(report.requests)}
    counts["model loads"] = report.loads
    return Played(seed, Counter(counts) + report.outcomes, Counter())


def replay(seed: int) -> int:
    """Play one seed, showing the scenario and the end of its trace; return the exit status."""
    scenario = random_scenario(seed)
    say(pformat(scenario, width=100))
    simulation = Simulation(scenario, seed)
    try:
        report = simulation.run()
    except AssertionError as error:
        say(str(error))
        return 1
    say("\n".join(simulation.trace_lines()))
    say(str(report))
    say(f"digest {report.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(play_by_seeds("forebay.testing.simulation", 2000, play, replay))
