"""The stock Node client in front of the gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import LIMIT_S, MODEL

if TYPE_CHECKING:
    from .conftest import Engine, Stage

HERE = Path(__file__).parent / "node"


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm on this machine")
async def test_the_node_client_talks_streams_and_reads_our_errors(
    stage: Stage, engine: Engine
) -> None:
    assert (HERE / "node_modules" / "openai").is_dir(), "run: npm ci --prefix tests/real/node"
    child = await asyncio.create_subprocess_exec(
        "node", str(HERE / "talk.mjs"), f"{stage.url}/v1", MODEL, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(LIMIT_S):
        said, complaints = await child.communicate()
    assert child.returncode == 0, complaints.decode()
    seen = json.loads(said)
    assert seen["models"] == [MODEL]
    assert seen["answered"] == 1
    assert seen["pieces"] >= 2
    assert seen["error"] == {"name": "NotFoundError", "status": 404, "code": "model_not_found"}
    assert seen["refused"] == {"name": "BadRequestError", "param": "X-Forebay-Max-Wait"}
