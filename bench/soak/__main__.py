"""`python -m bench.soak [--hours 1] [--source src]`: soak one gateway; exit status 1 if it leaks.

Everything runs on loopback in a folder of its own: one gateway, three simulated nodes and one that
speaks Ollama, SQLite for jobs and sessions. Samples go to `samples.jsonl`, the verdict to
`summary.txt`, and both to `report.html`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.soak.crowd import Crowd
from bench.soak.faults import Faults
from bench.soak.picture import picture
from bench.soak.samples import Sample, Sampler
from bench.soak.stage import PATIENCE_S, Stage
from bench.soak.summary import summary, tracebacks
from bench.soak.tally import Tally
from bench.soak.verdict import not_back, not_flat

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent.parent
WARM_UP_S = 60.0
"""With a burst and some large bodies, so that the allocator has seen them."""
DRAIN_S = 180.0
"""Longer than every time limit of the settings together, and than the idle sessions."""
LOOK_S = 2.0


class Soak:
    """One run: warm up, note where things stand, load, drain, judge."""

    def __init__(self, stage: Stage, options: argparse.Namespace) -> None:
        self.stage = stage
        self.tally = Tally()
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self._options = options
        self._sampler = Sampler(stage)
        self._crowd = Crowd(stage.port, options.seed, options.rate, self.tally)
        draw = random.Random(f"faults {options.seed}")
        self._faults = Faults(stage, draw, self.tally)
        self._pooled_max = sum(node.slots for node in stage.nodes)  # kept for the next request

    async def run(self) -> None:
        """Run it all; what is wrong afterwards is in `problems`."""
        await self._crowd.come(WARM_UP_S)
        await self._crowd.leave(PATIENCE_S)
        before = await self._drained(None)
        await self._load(self._options.hours * 3600)
        await self._faults.mend()
        await self._crowd.leave(PATIENCE_S)
        after = await self._drained(before)
        self.problems += not_flat(self.samples)
        self.problems += [
            f"after the load, {text}" for text in not_back(before, after, self._pooled_max)
        ]
        self.problems += self.tally.faults
        if self._tracebacks():
            self.problems.append(f"{self._tracebacks()} tracebacks in the log of the gateway")

    def _tracebacks(self) -> int:
        return tracebacks(self.stage.gateway.log)

    async def _load(self, seconds: float) -> None:
        faults = asyncio.create_task(self._faults.go_on())
        sampling = asyncio.create_task(self._sample())
        coming = asyncio.create_task(self._crowd.come(seconds))
        running = {faults, sampling, coming}
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in running:
                task.cancel()
            ends = await asyncio.gather(*running, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _sample(self) -> None:
        path = self.stage.folder / "samples.jsonl"
        while True:
            sample = await self._sampler.take()
            sample.sent, sample.present = self.tally.requests, self._crowd.present
            self.samples.append(sample)
            with path.open("ab") as file:
                file.write(msgspec.json.encode(sample) + b"\n")
            await asyncio.sleep(self._options.every)

    async def _drained(self, before: Sample | None) -> Sample:
        """Wait until nothing is left, or for the limit; returns how it then stands."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + DRAIN_S
        while True:
            sample = await self._sampler.take()
            if not not_back(before or sample, sample, self._pooled_max) or loop.time() > end_s:
                return sample
            await asyncio.sleep(LOOK_S)


async def soak(options: argparse.Namespace, folder: Path) -> int:
    """Run one soak in the folder; returns the exit status."""
    draw = random.Random(f"ports {options.seed}")
    stage = Stage(folder, options.source, draw, options.serve)
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    try:
        await stage.start()
        run = Soak(stage, options)
        try:
            await run.run()
        except asyncio.CancelledError:
            run.problems.append("interrupted")
        except (OSError, EOFError, AssertionError) as error:
            run.problems.append(f"the gateway does not answer: {error!r}")
        told = summary(run.samples, run.tally, run.problems, options)
        (folder / "summary.txt").write_text(told)
        print(told)
        if run.samples:
            hours = (run.samples[-1].at_s - run.samples[0].at_s) / 3600
            title = f"Soak of {hours:.2g} hours, seed {options.seed}"
            shown = picture(run.samples, options.every, title, told)
            (folder / "report.html").write_text(shown)
        return 1 if run.problems else 0
    finally:
        await stage.stop()


def main(words: Sequence[str]) -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long the load lasts")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the forebay to soak")
    parser.add_argument("--rate", type=float, default=15.0, help="visits per second")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument(
        "--serve", action="append", default=[], help="an option for the gateway: --serve=--x"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="where to work; a new temporary one if not said"
    )
    options = parser.parse_args(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="forebay-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(
        f"soaking {options.source} for {options.hours:g} h; samples and logs: {folder}", flush=True
    )
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(soak(options, folder))
    return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
