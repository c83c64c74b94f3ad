"""`python -m harness.fleet`, as a person runs it: it starts, works, and is gone again."""

from __future__ import annotations

import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.testing.raw_client import RawClient
from harness.fleet.balancer import haproxy_binary
from harness.fleet.ports import free_port
from harness.fleet.program import Program, ProgramFailed, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "deploy" / "haproxy.cfg"
IMPORTS = {"PYTHONPATH": str(ROOT)}
ROW = re.compile(r"^([a-z0-9-]+) +(\d+)  ", re.MULTILINE)
WORDS = [sys.executable, "-m", "harness.fleet", "--port", "0"]
CHAT = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


def alive(pid: int) -> bool:
    """Whether a program runs; what has ended and waits to be looked at does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Program]:
    words = [*WORDS, "--folder", str(tmp_path / "fleet"), "--haproxy-if-there", str(CONFIG)]
    program = Program("fleet", words, tmp_path, IMPORTS)
    program.start()
    try:
        await program.says("Ctrl-C stops everything.", 60.0)
        yield program
    finally:
        await program.stop()


async def test_everything_is_there_and_answers_and_goes_when_it_is_told_to(
    command: Program,
) -> None:
    pids = {name: int(pid) for name, pid in ROW.findall(command.text)}
    nodes = {f"{kind}gpu{number}" for kind in ("", "guard-") for number in (1, 2, 3)}
    assert {"gateway-1", "gateway-2", "valkey", *nodes} <= set(pids)
    assert "postgresql://" in command.text
    try:
        haproxy_binary()
        assert "haproxy" in pids
    except ProgramFailed:
        assert "HAProxy is not installed" in command.text
    assert all(map(alive, pids.values()))
    for port in re.findall(r"(?:haproxy|gateway-\d) +\d+  http://127.0.0.1:(\d+)", command.text):
        async with await RawClient.connect("127.0.0.1", int(port)) as client:
            await client.post("/v1/chat/completions", CHAT)
            assert (await client.reply()).status == 200
    command.signal(signal.SIGINT)
    assert await command.ended(120.0) == 0
    assert not any(map(alive, pids.values()))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells the children")
async def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    words = [*WORDS, "--folder", str(tmp_path / "fleet"), "--no-postgres", "--nodes", "1"]
    program = Program("fleet", words, tmp_path, IMPORTS)
    program.start()
    try:
        await program.says("Ctrl-C stops everything.", 60.0)
        pids = [int(pid) for _, pid in ROW.findall(program.text)]
        assert len(pids) == 5
    finally:
        await program.kill()
    await until(lambda: not any(map(alive, pids)), "somebody lives on")


async def test_a_port_that_is_taken_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        words = [*WORDS[:-1], str(port), "--folder", str(tmp_path / "fleet")]
        words += ["--no-postgres", "--no-guards", "--nodes", "1"]
        program = Program("fleet", words, tmp_path, IMPORTS)
        program.start()
        try:
            assert await program.ended(60.0) == 1
        finally:
            await program.stop()
    assert f"port {port} is in use" in program.text
    assert f"--port {port + 100}" in program.text
    assert "starting" not in program.text
    assert "Traceback" not in program.text
