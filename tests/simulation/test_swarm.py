"""Random worlds by the thousand, played and checked step by step; and the command that does it."""

import re
import subprocess
import sys

import pytest

from forebay.core import Scheduler
from forebay.testing.simulation import Simulation, random_scenario
from forebay.testing.simulation.__main__ import play

CHUNKS = 80
CHUNKS_AT_ONCE = 20
"""The others take long."""
SEEDS_PER_CHUNK = 25
FIRST_SEED = 100_000
"""Apart from the seeds of `make sim`, so that together they see more."""


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay.testing.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(chunk, marks=[pytest.mark.long] * (chunk >= CHUNKS_AT_ONCE))
        for chunk in range(CHUNKS)
    ],
)
def test_every_promise_holds_in_random_worlds(chunk: int) -> None:
    first = FIRST_SEED + chunk * SEEDS_PER_CHUNK
    for seed in range(first, first + SEEDS_PER_CHUNK):
        played = play(seed)
        assert not played.trouble, played.trouble
        assert played.sums["steps checked"]


def test_random_worlds_are_small_and_varied() -> None:
    reports = [Simulation(random_scenario(seed), seed).run() for seed in range(60)]
    assert 100 <= sum(report.steps for report in reports) / len(reports) <= 300
    seen = {code for report in reports for code in report.outcomes}
    assert seen >= {"served", "failed", "cancelled", "queue_full", "queue_timeout", "no_node"}
    assert any(report.loads > 2 for report in reports)
    limits = [random_scenario(seed).options.key_limits for seed in range(60)]
    assert 10 <= sum(bool(one) for one in limits) <= 30


def test_the_same_seed_gives_the_same_actions_and_another_seed_others() -> None:
    digests = [Simulation(random_scenario(seed), seed).run().digest for seed in (7, 7, 8)]
    assert digests[0] == digests[1] != digests[2]


def test_the_command_plays_many_seeds_and_sums_them_up() -> None:
    shown = run_command("--seeds", "30", "--workers", "2")
    assert shown.returncode == 0, shown.stdout
    assert "30/30 seeds, 0 failed" in shown.stdout
    assert re.search(r"^steps checked +\d{4,}$", shown.stdout, re.MULTILINE)


def test_the_command_replays_one_seed_with_its_scenario_and_the_end_of_its_trace() -> None:
    shown = run_command("--seed", "5")
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.startswith("Scenario(")
    assert "make sim SEED=5" in shown.stdout
    assert "outcomes" in shown.stdout


def test_a_failure_says_how_to_replay_it() -> None:
    scenario = random_scenario(1)
    broken = Scheduler()
    broken.next_deadline_s = lambda: -1.0  # type: ignore[method-assign]  # broken on purpose
    with pytest.raises(AssertionError, match=r"make sim SEED=1\b"):
        Simulation(scenario, 1, broken).run()
