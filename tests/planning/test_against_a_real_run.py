"""The replay of a real run's log says what that run measured; and what another one then measures.

A real gateway in front of simulated nodes over loopback, loaded by `forebay bench`. The bounds are
on ratios of what was measured in one run: how fast this machine is does not decide.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.clock import LoopClock
from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.logs import Outlet
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import Settings

COMMAND = str(Path(sys.executable).parent / "forebay")
OPTIONS = SimOptions(slots=4, ttft_s=0.1, tokens_per_second=100.0)
MIXES = ("--users", "alice:3,bob:1", "--priorities", "high:1,normal:4")
WITHIN = 0.2
"""How far a prediction may be off."""
CLOSE_S = 0.02
"""Below this a wait is a matter of the event loop, not of the queue."""


def write_trace(path: Path) -> None:
    """Write 180 requests of all sizes in about 6 s: more than two nodes can do in that time."""
    source, at_s, rows = random.Random(3), 0.0, ["at_s,prompt_tokens,output_tokens"]
    for _ in range(180):
        at_s += source.expovariate(30.0)
        rows.append(f"{at_s},{source.randint(10, 200)},{source.randint(4, 60)}")
    path.write_text("\n".join(rows))


async def record(
    loads: list[list[str]], nodes: int, options: SimOptions = OPTIONS, **queue: Any
) -> bytes:
    """Load a gateway with so many nodes, by one `bench` for each load; return its access log."""
    log = io.BytesIO()
    async with AsyncExitStack() as stack:
        listed = []
        for number in range(nodes):
            node = SimNode(options)
            await node.start()
            stack.push_async_callback(node.stop)
            # Named: slots that are found, and change meanwhile, are not what a replay has.
            listed.append({"name": f"n{number + 1}", "url": node.url, "slots": options.slots})
        settings = Settings(nodes=listed, server={"port": 0}, queue={"max_size": 1000, **queue})  # type: ignore[arg-type] # pydantic reads dicts
        clock = LoopClock(asyncio.get_running_loop())
        gateway = Gateway(settings, environ={}, clock=clock, log=AccessLog(Outlet(log.write)))
        await stack.enter_async_context(gateway)
        url = f"http://127.0.0.1:{gateway.port}"
        await asyncio.gather(*(bench("--url", url, *words) for words in loads))
    return log.getvalue()


async def bench(*words: str) -> None:
    child = await asyncio.create_subprocess_exec(
        COMMAND, "bench", *words, stdout=DEVNULL, stderr=PIPE
    )
    _, said = await child.communicate()
    assert child.returncode == 0, said


def replayed(path: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what was recorded and what is predicted."""
    words = ("sim", "--from", str(path), "--set", "queue.max_size=1000", *words, "--json")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    return made["recorded"], made["variants"][0]["summary"]


def assert_close(predicted: dict[str, Any], measured: dict[str, Any]) -> None:
    assert predicted["count"] == measured["count"]
    for rank in ("p50", "p95"):
        off_s = abs(predicted[rank] - measured[rank])
        assert off_s <= max(WITHIN * measured[rank], CLOSE_S), (rank, predicted, measured)


@pytest.mark.long  # it is timed: nodes and clients are real
async def test_a_log_predicts_the_waits_of_its_own_run_and_with_a_node_less(tmp_path: Path) -> None:
    trace, three, two = (tmp_path / name for name in ("trace.csv", "three.log", "two.log"))
    write_trace(trace)
    load = ["--trace", str(trace), *MIXES]
    three.write_bytes(await record([load], nodes=3))
    two.write_bytes(await record([load], nodes=2))
    measured, again = replayed(two)
    assert measured["all"]["wait"]["p95"] > 10 * CLOSE_S  # else there is nothing to predict
    assert_close(again["all"]["wait"], measured["all"]["wait"])
    for name in ("high", "normal"):
        assert_close(again["by_priority"][name]["wait"], measured["by_priority"][name]["wait"])
    _, predicted = replayed(three, "--nodes", "2xsim:4")
    assert_close(predicted["all"]["wait"], measured["all"]["wait"])


@pytest.mark.long
async def test_a_log_predicts_the_waits_of_its_own_run_where_a_node_swaps_models(
    tmp_path: Path,
) -> None:
    """One node: of two, a swap a millisecond later changes all that follow, in either run."""
    options = replace(OPTIONS, models=("a", "b"), load_s=1.0)
    usual = ["--duration", "25s", "--max-tokens", "32"]
    loads = [["--model", "a", "--rate", "4", *usual], ["--model", "b", "--rate", "2", *usual]]
    log = tmp_path / "access.log"
    log.write_bytes(await record(loads, 1, options, swap_wait_seconds=2.0))
    measured, again = replayed(log, "--set", "queue.swap_wait_seconds=2")
    assert again["swaps"] > 5
    assert_close(again["all"]["wait"], measured["all"]["wait"])
