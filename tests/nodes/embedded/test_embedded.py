"""The embedded node: a real llama.cpp server in a child process, from start to end."""

import asyncio
import os
import select
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BackendFailed
from forebay.nodes import ADAPTERS
from forebay.nodes.embedded import embedded_node as embedded
from forebay.nodes.embedded.embedded_node import EmbeddedNode, EmbeddedOptions

from ..asking import HttpxFetch

LIMIT_S = 60.0

PARENT = """
import asyncio, sys
from pathlib import Path
from forebay.nodes.embedded.embedded_node import EmbeddedNode, EmbeddedOptions

async def main():
    node = EmbeddedNode(EmbeddedOptions(Path(sys.argv[1]), "tiny"))
    await node.start()
    print(node._child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def node_of(gguf: Path) -> EmbeddedNode:
    return EmbeddedNode(EmbeddedOptions(gguf, "tiny", slots=2, context_tokens=256, threads=1))


async def test_it_starts_serves_and_stops_and_each_twice(tiny_gguf: Path) -> None:
    node = node_of(tiny_gguf)
    await node.start()
    url = node.url
    await node.start()
    assert node.url == url, "a second start changes nothing"
    async with HttpxFetch(url) as fetch:
        report = await ADAPTERS["llama-cpp"].probe(fetch)
        assert (report.models, report.slots, report.state) == (("tiny",), 2, "online")
        await node.stop()
        await node.stop()
        assert (node.url, node.is_running) == ("", False)
        with pytest.raises(BackendFailed):
            await fetch("GET", "/health")


async def test_it_can_be_started_again_after_a_stop(tiny_gguf: Path) -> None:
    node = node_of(tiny_gguf)
    await node.start()
    await node.stop()
    await node.start()
    assert node.is_running
    await node.stop()


async def test_a_model_that_cannot_be_read_fails_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is no model")
    node = node_of(broken)
    with pytest.raises(BackendFailed, match=r"broken\.gguf"):
        await node.start()
    assert not node.is_running


async def test_what_it_wrote_is_kept_but_not_without_limit(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "TAIL_BYTES_MAX", 100)
    node = node_of(tiny_gguf)
    await node.start()
    await node.stop()
    assert 0 < len(node.tail) <= 100


async def test_a_start_that_takes_too_long_is_given_up(tiny_gguf: Path) -> None:
    node = node_of(tiny_gguf)
    with pytest.raises(BackendFailed, match="not ready"):
        await node.start(limit_s=0.0)
    assert not node.is_running


async def test_a_start_that_is_cancelled_leaves_no_child(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: asyncio.Queue[Process] = asyncio.Queue()
    begin = asyncio.create_subprocess_exec

    async def watched(*command: str, **options: Any) -> Process:
        child = await begin(*command, **options)
        children.put_nowait(child)
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    node = node_of(tiny_gguf)
    starting = asyncio.create_task(node.start())
    child = await children.get()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert child.returncode is not None
    assert not node.is_running


@pytest.mark.skipif(sys.platform != "linux", reason="watches a process by pidfd")
def test_the_child_dies_with_its_parent(tiny_gguf: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tiny_gguf)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ended, _, _ = select.select([watched], [], [], LIMIT_S)
        os.close(watched)
        assert ended


async def test_one_that_is_killed_is_started_again_and_serves(tiny_gguf: Path) -> None:
    node = node_of(tiny_gguf)
    await node.start()
    back = asyncio.Event()
    keeping = asyncio.ensure_future(node.keep_running(back.set))
    assert node._child is not None
    node._child.kill()
    async with asyncio.timeout(LIMIT_S):
        await back.wait()
    async with HttpxFetch(node.url) as fetch:
        assert (await ADAPTERS["llama-cpp"].probe(fetch)).models == ("tiny",)
    keeping.cancel()
    await node.stop()
