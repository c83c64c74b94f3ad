"""`forebay serve` and `forebay node` as people start them, on one token and nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from forebay.nodes.sim.engine import SimOptions

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from .conftest import Shell

FAST = SimOptions(models=("m",), slots=2, ttft_s=0.0, tokens_per_second=0.0)
TOKEN = "open-sesame-4711"


async def test_a_gateway_without_nodes_waits_for_guards_and_serves_what_they_bring(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GUARD_TOKEN", TOKEN)
    gateway, port = await shell.serve("--set", "guard.token_env=GUARD_TOKEN", cwd=tmp_path)
    assert "forebay node --backend URL" in gateway.text
    assert (await shell.get(port, "/admin/nodes"))["data"] == []  # no model of its own
    node = await shell.sim_node(FAST)
    url = f"http://127.0.0.1:{port}"
    guard = await shell.start(
        "node", "--port", "0", "--backend", node, "--gateway", url, "--name", "gpu1",
        "--token-env", "GUARD_TOKEN",
    )  # fmt: skip
    await guard.says(f"registers with {url} as gpu1")
    await gateway.says("node is online")
    reply = await (await shell.ask(port, model="m")).reply()
    assert (reply.status, reply.headers["x-forebay-node"]) == (200, "gpu1")
    listed = await shell.start("nodes", "list", "--url", url)
    assert "sim, guarded" in await listed.says("gpu1")
    guard.signal(signal.SIGTERM)
    assert await guard.ends() == 0
    await gateway.says("guard deregistered")
    assert (await shell.get(port, "/admin/nodes"))["data"] == []
    assert TOKEN not in gateway.text + guard.text


async def test_a_guard_that_is_refused_says_why_and_goes_on_guarding(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GUARD_TOKEN", TOKEN)
    node = await shell.sim_node(FAST)
    _, port = await shell.serve("--node", node, cwd=tmp_path)
    guard = await shell.start(
        "node", "--port", "0", "--backend", node, "--gateway", f"http://127.0.0.1:{port}",
        "--token-env", "GUARD_TOKEN",
    )  # fmt: skip
    line = await guard.says("not registered")
    assert "403" in line
    assert "guard.token_env is not set" in line
    guard.signal(signal.SIGINT)
    assert await guard.ends() == 0
