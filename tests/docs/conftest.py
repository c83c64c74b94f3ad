"""The site, built once for all tests that look at it, and a reader who tries what it says."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_record import AccessRecord, json_lines
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings, Settings

from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parent.parent.parent
MODELS = ("smollm2-135m-instruct", "sim-model", "nomic-embed-text")
CHAT = {"model": MODELS[0], "messages": [{"role": "user", "content": "Hello!"}]}


def build_site(folder: Path) -> None:
    """Do what `make docs` does; every warning of MkDocs is a failure (but not with `--quiet`)."""
    words = ("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # noqa: TID251 # for the child
    built = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (built.returncode, "WARNING" in built.stderr) == (0, False), built.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The site, which the first worker that needs it builds for all."""
    place = tmp_path_factory.getbasetemp()
    if pytestconfig.getoption("--workers"):
        place = place.parent
    folder, unfinished = place / "site", place / "unfinished-site"
    with (place / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build_site(unfinished)
            unfinished.rename(folder)
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
    (tmp_path / "trace.csv").write_text("at_s,prompt_tokens,output_tokens\n0,100,10\n9,100,10\n")
    served = AccessRecord(
        "2030-01-01T00:00:09+00:00", "/v1/chat/completions", "served", "1", MODELS[0], "gpu1",
        attempt=1, run_ms=500, arrived=1893456000.0, user_hash="aa",
    )  # fmt: skip
    (tmp_path / "access.log").write_bytes(json_lines([served]))
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
