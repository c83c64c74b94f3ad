"""The examples of the SDK's pages, run as they stand against a gateway with a simulated model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import forebay.sdk
from forebay.gateway.gateway import Gateway
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE, TUTORIAL = DOCS / "sdk.md", DOCS / "tutorials" / "agents.md"
BLOCKS = [
    block
    for page in (PAGE, TUTORIAL)
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
]
MODEL = "smollm2-135m-instruct"
LIMIT_S = 60.0  # only turns a hang into a failure


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    options = SimOptions(models=(MODEL,), ttft_s=0.0, tokens_per_second=0.0)
    node = SimNode(options, "127.0.0.1", 0)
    await node.start()
    given: dict[str, Any] = {
        "server": {"port": 0},
        "nodes": [{"name": "embedded", "url": node.url}],
        "jobs": {"database": f"sqlite:///{tmp_path}/jobs.db"},
    }
    try:
        async with Gateway(Settings(**given), environ={}) as started:
            yield started
    finally:
        await node.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
async def test_an_example_runs_and_says_something(gateway: Gateway, block: str) -> None:
    here = block.replace("127.0.0.1:7800", f"127.0.0.1:{gateway.port}")
    said: list[str] = []
    names: dict[str, Any] = {
        "print": lambda *words, **_: said.append(" ".join(str(word) for word in words))
    }
    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(exec, here, names)
    assert len("".join(said)) > 3


def test_the_page_names_every_exception_and_every_method() -> None:
    text = PAGE.read_text()
    for name in forebay.sdk.__all__:
        kind = getattr(forebay.sdk, name)
        if isinstance(kind, type) and issubclass(kind, Exception) and name != "SdkError":
            assert f"`{name}`" in text, name
    for kind in (forebay.sdk.Client, forebay.sdk.SessionClient):
        for name in vars(kind):
            if not name.startswith("_") and callable(getattr(kind, name)):
                assert re.search(rf"\b{name}\b", text), name
