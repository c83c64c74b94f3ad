"""Play many schedules of faults against real fleets; what fails leaves its logs behind.

python -m harness.fleet.trials --seeds 10
python -m harness.fleet.trials --seed 3
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from harness.fleet.schedule import random_schedule
from harness.fleet.trial import Trial, Verdict, run_trial

SHOWN = 5


def drawn(seed: int, faults: int = 3, lease_s: float = 1.0) -> Trial:
    """Return the trial of a seed: 2 to 5 gateways, and a few faults."""
    gateways = 2 + seed % 4
    schedule = random_schedule(seed, gateways, lease_s, faults)
    return Trial(gateways=gateways, schedule=schedule, lease_s=lease_s, seed=seed)


def played(trial: Trial, folder: Path) -> Verdict:
    """Play one trial, telling what happens in it and what came of it."""
    faults = ", ".join(
        f"{fault.kind} {fault.target} for {fault.for_s} s" for fault in trial.schedule
    )
    say(f"seed {trial.seed}: {trial.gateways} gateways; {faults}")
    verdict = asyncio.run(run_trial(trial, folder))
    say("  " + ", ".join(f"{name} {value}" for name, value in verdict.figures.items()))
    for one in verdict.wrong[:SHOWN]:
        say(f"  WRONG {one}")
    if verdict.wrong:
        say(f"  {len(verdict.wrong)} wrong; replay with: make faults SEED={trial.seed}")
    return verdict


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m harness.fleet.trials")
    parser.add_argument("--seeds", type=int, default=10, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play only this one")
    parser.add_argument("--faults", type=int, default=3, help="how many faults in each")
    parser.add_argument("--lease-seconds", type=float, default=1.0)
    chosen = parser.parse_args()
    first, count = (chosen.first, chosen.seeds) if chosen.seed is None else (chosen.seed, 1)
    failed = []
    for seed in range(first, first + count):
        folder = Path(tempfile.mkdtemp(prefix=f"forebay-trial-{seed}-"))
        trial = drawn(seed, chosen.faults, chosen.lease_seconds)
        if played(trial, folder).wrong:
            failed.append(seed)
            say(f"  logs: {folder}")
        else:
            shutil.rmtree(folder)
    say(f"{count} seeds, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
