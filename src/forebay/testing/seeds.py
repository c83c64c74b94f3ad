"""The command line of what is played by seeds: many of them, or one again."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import cpu_count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 25
"""At most so many seeds are given to a process at once."""
FAILURES_SHOWN = 5


class Played(NamedTuple):
    """What came of one seed."""

    seed: int
    sums: Counter[str]
    peaks: Counter[str]
    trouble: str = ""
    """What broke and how to replay it."""


def say(text: str, end: str = "\n") -> None:
    """Print, at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def play_by_seeds(
    program: str, seeds: int, play: Callable[[int], Played], replay: Callable[[int], int]
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
    wanted = range(chosen.first, chosen.first + chosen.seeds)
    return _play_all(wanted, chosen.workers, play)


def _play_all(seeds: range, workers: int, play: Callable[[int], Played]) -> int:
    """Play many seeds on all cores, with progress; return the exit status."""
    sums: Counter[str] = Counter()
    peaks: Counter[str] = Counter()
    failed: list[Played] = []
    chunk = max(1, min(CHUNK, len(seeds) // (4 * workers)))
    with ProcessPoolExecutor(workers) as pool:
        for number, played in enumerate(pool.map(play, seeds, chunksize=chunk), 1):
            sums += played.sums
            peaks |= played.peaks
            if played.trouble:
                failed.append(played)
            say(f"\r{number}/{len(seeds)} seeds, {len(failed)} failed", end="")
    say("")
    for played in failed[:FAILURES_SHOWN]:
        say(played.trouble, end="\n\n")
    rows = [*sums.most_common(), *peaks.most_common(), ("failed seeds", len(failed))]
    say("\n".join(f"{name:<26}{figure:>10}" for name, figure in rows))
    if failed:
        say("failed seeds: " + " ".join(str(played.seed) for played in failed))
    return 1 if failed else 0
