"""The same events lead to the same actions, whatever order Python's sets of names have."""

from __future__ import annotations

import os
import subprocess
import sys

SEEDS = (3, 11, 17, 29)
PLAY = """
import sys
from forebay.testing.simulation import (Simulation, random_scenario)
for seed in map(int, sys.argv[1:]):
    print(Simulation(random_scenario(seed), seed).run().digest)
"""


def digests(hash_seed: int) -> list[str]:
    """Return what a process does with some random scenarios, whose names it hashes in its way."""
    played = subprocess.run(
        [sys.executable, "-c", PLAY, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},  # noqa: TID251  # a child's
        capture_output=True,
        text=True,
        check=True,
    )
    return played.stdout.split()


def test_the_same_events_have_the_same_actions_whatever_the_hash_seed() -> None:
    one, another = digests(1), digests(2)
    assert len(one) == len(SEEDS)
    assert one == another
