"""The site, built once for all tests that look at it, and a reader who tries what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings, Settings

from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parent.parent.parent
MODELS = ("smollm2-135m-instruct", "sim-model", "nomic-embed-text")
CHAT = {"model": MODELS[0], "messages": [{"role": "user", "content": "Hello!"}]}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds; every warning of MkDocs is a failure (but not with `--quiet`)."""
    folder = tmp_path_factory.mktemp("site")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # noqa: TID251 # for the child
    built = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (built.returncode, "WARNING" in built.stderr) == (0, False), built.stderr
    return folder


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    """A reader in a folder with the files that pages speak of, before a gateway of their own."""
    request = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    (tmp_path / "questions.jsonl").write_text(json.dumps(request) + "\n")
    lines = (ROOT / "docs" / "batches.md").read_text().splitlines()
    shown = [line for line in lines if line.startswith(('{"custom_id": "1"', '{"custom_id": "2"'))]
    assert len(shown) == 2, "docs/batches.md shows a file of two lines"
    (tmp_path / "prompts.jsonl").write_text("\n".join(shown) + "\n")
    (tmp_path / "request.json").write_text(json.dumps(CHAT))
    node = SimNode(SimOptions(models=MODELS, ttft_s=0.0, tokens_per_second=0.0), "127.0.0.1", 0)
    await node.start()
    given: dict[str, Any] = {
        "server": {"port": 0},
        "nodes": (NodeSettings(name="embedded", url=node.url),),
        "jobs": {"database": f"sqlite:///{tmp_path}/jobs.db"},
    }
    try:
        async with Gateway(Settings(**given), environ={}) as gateway:
            yield Reader(gateway.port, node.url, tmp_path)
    finally:
        await node.stop()
