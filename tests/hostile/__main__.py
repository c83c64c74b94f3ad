"""`make hostile HOURS=1`: run after run, each with seeds of its own, until one fails."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tools.compile import CompiledPackage

from .run import Run
from .stand import Stand


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="go on for so long")
    parser.add_argument("--seed", default="", help="play this one, once")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of each run")
    parser.add_argument("--only", nargs="*", default=[], help="these plays alone")
    parser.add_argument("--build", choices=("plain", "compiled", "guard"), default="plain")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--no-self-check", action="store_true", help="go on after a lost slot")
    return parser.parse_args()


async def stand_for(given: argparse.Namespace, folder: Path) -> Stand:
    if given.build == "guard":
        return await Stand.guard(folder)
    compiled = None
    if given.build == "compiled":
        compiled = CompiledPackage(optimised=False).make(if_changed=True)
    return await Stand.gateway(folder, compiled, self_check=not given.no_self_check)


async def play(seed: str, given: argparse.Namespace) -> bool:
    """Play one seed against a fresh process; return whether all was well."""
    started_s = asyncio.get_running_loop().time()
    with tempfile.TemporaryDirectory() as folder:
        stand = await stand_for(given, Path(folder))
        try:
            report = await Run(stand, seed, given.requests, given.only).play()
        finally:
            await stand.stop()
    took_s = asyncio.get_running_loop().time() - started_s
    sys.stdout.write(f"{report}\n  {took_s:.1f} s, {given.build}\n")
    if report.failures:
        only = f" --only {' '.join(given.only)}" if given.only else ""
        sys.stdout.write(
            f"replay: .venv/bin/python -m tests.hostile --build {given.build} --seed {seed} "
            f"--requests {given.requests}{only}\n"
        )
    sys.stdout.flush()
    return not report.failures


async def main() -> int:
    given = options()
    loop = asyncio.get_running_loop()
    until_s, failed = loop.time() + 3600 * given.hours, 0
    while True:
        seed = given.seed or secrets.token_hex(4)
        failed += not await play(seed, given)
        if given.seed or loop.time() >= until_s or (failed and not given.keep_going):
            return min(failed, 1)


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
