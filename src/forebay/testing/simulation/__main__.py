"""Play random scenarios over many seeds, or replay one and show it.

python -m forebay.testing.simulation --seeds 2000
python -m forebay.testing.simulation --seed 17
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pprint import pformat
from typing import TYPE_CHECKING

from forebay.testing.seeds import play_by_seeds, say
from forebay.testing.simulation import Report, Simulation, random_scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 25
"""Seeds that one worker plays before it says how it went."""
REPEAT_EVERY = 20
"""Every so many seeds one is played twice, to see that it gives the same actions."""
FAILURES_SHOWN = 5


@dataclass
class SeedSummary:
    """What came of some seeds."""

    played: int = 0
    steps: int = 0
    requests: int = 0
    loads: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.played += 1
        self.steps += report.steps
        self.requests += len(report.requests)
        self.loads += report.loads
        self.outcomes.update(report.outcomes)

    def merge(self, other: SeedSummary) -> None:
        self.played += other.played
        self.steps += other.steps
        self.requests += other.requests
        self.loads += other.loads
        self.outcomes.update(other.outcomes)
        self.failures += other.failures

    def lines(self) -> list[str]:
        rows = [
            ("seeds played", self.played + len(self.failures)),
            ("steps checked", self.steps),
            ("requests and jobs", self.requests),
            ("model loads", self.loads),
            *((f"  {code}", count) for code, count in self.outcomes.most_common()),
            ("failed seeds", len(self.failures)),
        ]
        return [f"{name:<24}{count:>10}" for name, count in rows]


def play(seeds: Sequence[int]) -> SeedSummary:
    """Play some seeds; what fails is kept with its message."""
    summary = SeedSummary()
    for seed in seeds:
        scenario = random_scenario(seed)
        try:
            report = Simulation(scenario, seed).run()
            if seed % REPEAT_EVERY == 0:
                again = Simulation(scenario, seed).run()
                assert again.digest == report.digest, f"replay with: {scenario.name}: other actions"
            summary.add(report)
        except AssertionError as error:
            summary.failures.append((seed, str(error)))
    return summary


def play_all(first: int, count: int, workers: int) -> int:
    """Play many seeds on all cores, with progress; return the exit status."""
    seeds = iter(range(first, first + count))
    chunks = list(iter(lambda: list(islice(seeds, CHUNK)), []))
    total = SeedSummary()
    with ProcessPoolExecutor(workers) as pool:
        for summary in pool.map(play, chunks):
            total.merge(summary)
            played = total.played + len(total.failures)
            say(f"\r{played}/{count} seeds, {len(total.failures)} failed", end="")
    say("")
    for _, message in total.failures[:FAILURES_SHOWN]:
        say(message, end="\n\n")
    if total.failures:
        say("failed seeds: " + " ".join(str(seed) for seed, _ in total.failures))
    say("\n".join(total.lines()))
    return 1 if total.failures else 0


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
    sys.exit(play_by_seeds("forebay.testing.simulation", 2000, play_all, replay))
