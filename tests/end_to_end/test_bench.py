"""`forebay bench` as it is installed: against a gateway in front of a node, and interrupted."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from forebay.nodes.sim.engine import SimOptions
from forebay.testing import FakeNode

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Shell

OK = {
    "choices": [{"message": {"content": "x"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


async def test_a_gateway_in_front_of_a_node_is_loaded(shell: Shell, tmp_path: Path) -> None:
    url = await shell.sim_node(SimOptions(slots=4, ttft_s=0.0, tokens_per_second=0.0))
    (tmp_path / "gateway").mkdir()
    _, port = await shell.serve("--node", url, cwd=tmp_path / "gateway")
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{i / 100},{i},{1 + i}\n" for i in range(30))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    saved = tmp_path / "run.json"
    bench = await shell.start(
        "bench", f"http://127.0.0.1:{port}", "--trace", str(trace), "--speed", "2",
        "--priorities", "high:1,low:1", "--save", str(saved), "--fail-if", "errors>0",
    )  # fmt: skip
    assert await bench.ends() == 0, bench.text
    assert "30 of 30 (100 %)" in bench.text
    summary = json.loads(saved.read_text())["summary"]
    assert summary["all"]["wait"]["count"] == 30
    assert summary["offered_rate"] == pytest.approx(200.0)


async def test_ctrl_c_ends_it_early_and_reports_what_was_measured(
    shell: Shell, tmp_path: Path
) -> None:
    saved = tmp_path / "run.json"
    async with FakeNode() as node:
        bench = await shell.start(
            "bench", node.url, "--rate", "50", "--duration", "1h", "--no-stream",
            "--save", str(saved),
        )  # fmt: skip
        for _ in range(5):
            await (await node.next_call()).answer(OK)
        held = await node.next_call()
        bench.signal(signal.SIGINT)
        assert await bench.ends() == 130, bench.text
        await held.gone()
    assert "Interrupted: measured for" in bench.text
    run = json.loads(saved.read_text())
    whole = run["summary"]["all"]
    assert run["summary"]["is_interrupted"] is True
    assert whole["ok"] == 5
    assert whole["errors"] == 0
    assert whole["unfinished"] == whole["sent"] - 5 >= 1
