"""The command line of what is played by seeds: many of them, or one again."""

from __future__ import annotations

import argparse
import sys
from multiprocessing import cpu_count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def say(text: str, end: str = "\n") -> None:
    """Print, at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def play_by_seeds(
    program: str,
    seeds: int,
    play_all: Callable[[int, int, int], int],
    replay: Callable[[int], int],
) -> int:
    """Read the command line and do what it says; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one and show it")
    parser.add_argument("--workers", type=int, default=cpu_count(), help="processes to use")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        return replay(chosen.seed)
    return play_all(chosen.first, chosen.seeds, chosen.workers)
