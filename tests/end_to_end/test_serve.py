"""`forebay serve` in front of real processes: from the first answer to the last signal."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay import __version__
from forebay.build import describe_build
from forebay.nodes.sim.engine import SimOptions
from forebay.testing import FakeNode
from harness.polling import pause
from harness.preloaded import COMMAND

from .conftest import LIMIT_S, PROMPT, listening_port

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from .conftest import Command, Shell

FAST = SimOptions(models=("m",), slots=2, ttft_s=0.0, tokens_per_second=0.0)
SLOW = SimOptions(models=("m",), ttft_s=0.0, tokens_per_second=20.0)
ROOT = Path(__file__).parent.parent.parent
PATIENT = ("--set", "server.shutdown_seconds=3600")


async def test_the_first_answer_comes_through_and_the_console_says_what_to_try(
    shell: Shell,
) -> None:
    node = await shell.sim_node(FAST)
    gateway, port = await shell.serve("--node", node)
    reply = await (await shell.ask(port, model="m")).reply()
    assert reply.status == 200
    assert "simulated answer" in reply.json["choices"][0]["message"]["content"]
    assert reply.headers["x-queue-status"] == "direct"
    assert f"curl http://127.0.0.1:{port}/v1/chat/completions" in gateway.text
    assert '"model": "m"' in gateway.text
    assert f"version {__version__}, {describe_build()}" in gateway.text
    line = await gateway.says('"outcome":"served"')
    assert PROMPT not in gateway.text, "no prompt is ever logged"
    assert reply.headers["x-request-id"] in line


async def test_the_console_says_who_finds_its_slots_and_why_others_are_offline(
    shell: Shell,
) -> None:
    gone = [word for port in range(1, 13) for word in ("--node", f"http://127.0.0.1:{port}")]
    async with FakeNode(kind="ollama") as node:
        gateway, _ = await shell.serve("--node", node.url, *gone)
    assert ": online, finding how many slots, 1 model\n" in gateway.text
    [line] = [line for line in gateway.text.splitlines() if "offline: " in line]
    assert line.endswith("127.0.0.1-10 and 2 more (cannot connect: Connection refused)")


async def test_make_run_ends_with_make(shell: Shell, tmp_path: Path) -> None:
    node = await shell.sim_node(FAST)
    args = f"ARGS=--port 0 --node {node} --set jobs.database=sqlite:///{tmp_path}/jobs.db"
    place, programs = ("-C", str(ROOT)), f"BIN={Path(sys.executable).parent}"
    make = await shell.start_program("make", *place, "-o", ".venv/.run", "run", programs, args)
    await listening_port(make)
    make.signal(signal.SIGTERM)
    await make.ends()  # what it started has closed its output, too
    assert '"stopping"' in make.text


async def test_the_console_says_so_where_the_store_is_out_of_reach(shell: Shell) -> None:
    node = await shell.sim_node(FAST)
    with socket.socket() as nobody:  # bound, so that nobody else is, and does not listen
        nobody.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        gateway, port = await shell.serve("--node", node, "--set", f"coordination.url={url}")
        assert "coordination.url is unreachable: 503 until it is back" in gateway.text
        assert (await (await shell.ask(port, model="m")).reply()).status == 503


async def test_nodes_of_several_processes_share_one_queue(shell: Shell) -> None:
    words = ("--model", "m", "--slots", "2", "--ttft-ms", "0", "--tokens-per-second", "0")
    nodes = [await shell.sim_node_program(*words) for _ in range(2)]
    _, port = await shell.serve("--node", nodes[0], "--node", nodes[1])
    clients = [await shell.ask(port, model="m") for _ in range(20)]
    replies = [await client.reply() for client in clients]
    assert {reply.status for reply in replies} == {200}
    assert len({reply.headers["x-forebay-node"] for reply in replies}) == 2


async def begun_and_waiting(shell: Shell, tokens: int) -> tuple[Command, RawClient, RawClient]:
    """Return a gateway with one stream that has begun and one request that waits for its slot."""
    node = await shell.sim_node(SLOW)
    gateway, port = await shell.serve("--node", node, *PATIENT)
    limits = {"max_tokens": tokens, "ignore_eos": True}
    running = await shell.ask(port, model="m", stream=True, **limits)
    assert (await running.head()).status == 200
    assert await running.chunk() is not None
    waiting = await shell.ask(port, model="m", **limits)
    await shell.until_waiting(port, 1)
    return gateway, running, waiting


async def rest_of(client: RawClient) -> bytes:
    pieces = []
    async with asyncio.timeout(LIMIT_S):
        while (piece := await client.chunk()) is not None:
            pieces.append(piece)
    return b"".join(pieces)


async def test_a_first_signal_lets_what_runs_finish_and_turns_waiters_away(shell: Shell) -> None:
    gateway, running, waiting = await begun_and_waiting(shell, tokens=30)
    gateway.signal(signal.SIGTERM)
    refused = await waiting.reply()
    assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
    assert refused.headers["x-should-retry"] == "true"
    assert (await rest_of(running)).endswith(b"data: [DONE]\n\n")
    assert await gateway.ends() == 0


async def test_a_second_signal_stops_at_once_and_says_so_in_the_stream(shell: Shell) -> None:
    gateway, running, waiting = await begun_and_waiting(shell, tokens=100_000)
    gateway.signal(signal.SIGTERM)
    assert (await waiting.reply()).status == 503
    gateway.signal(signal.SIGTERM)
    rest = await rest_of(running)
    assert b"shutting_down" in rest
    assert b"[DONE]" not in rest
    assert await gateway.ends() == 0


async def test_while_it_drains_it_is_not_ready_but_alive(shell: Shell) -> None:
    node = await shell.sim_node(SLOW)
    gateway, port = await shell.serve("--node", node, *PATIENT)
    looking = await shell.connect(port)
    running = await shell.ask(port, model="m", stream=True, max_tokens=100_000, ignore_eos=True)
    await running.head()
    gateway.signal(signal.SIGINT)
    await gateway.says("stopping")
    for path, status in (("/ready", 503), ("/health", 200)):
        await looking.get(path)
        assert (await looking.reply()).status == status
    running.close()
    assert await gateway.ends() == 0


async def test_a_good_file_is_taken_over_and_a_bad_one_is_not(shell: Shell, tmp_path: Path) -> None:
    node = await shell.sim_node(FAST)
    file = tmp_path / "forebay.toml"
    head = f'[[nodes]]\nname = "n1"\nurl = "{node}"\n'
    file.write_text(head)
    gateway, port = await shell.serve("--config", str(file))

    file.write_text(f'{head}[models]\naliases = {{ "best" = "m" }}\n')
    gateway.signal(signal.SIGHUP)
    assert "models" in await gateway.says("settings reloaded")
    assert (await (await shell.ask(port, model="best")).reply()).status == 200

    file.write_text(f"{head}[queue]\nmax_sise = 3\n")
    gateway.signal(signal.SIGHUP)
    assert "queue.max_size" in await gateway.says("settings NOT reloaded")
    assert (await (await shell.ask(port, model="best")).reply()).status == 200


async def test_a_port_that_is_taken_is_said_plainly(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        gateway = await shell.start("serve", "--port", port, "--node", "http://127.0.0.1:1")
        assert await gateway.ends() == 1
    assert "--port" in gateway.text
    assert "Traceback" not in gateway.text


async def test_settings_that_cannot_be_used_are_named_before_anything_starts(
    shell: Shell,
) -> None:
    gateway = await shell.start("serve", "--set", "queue.max_sise=3", "--node", "http://x")
    assert await gateway.ends() == 2
    assert "queue.max_sise" in gateway.text
    assert "queue.max_size" in gateway.text
    assert "Traceback" not in gateway.text


async def test_status_and_nodes_talk_to_a_gateway_that_runs(shell: Shell) -> None:
    nodes = [await shell.sim_node(FAST) for _ in range(2)]
    _, port = await shell.serve("--node", nodes[0])
    here = ("--url", f"http://127.0.0.1:{port}")
    added = await shell.start("nodes", "add", nodes[1], "--name", "second", *here)
    assert await added.ends() == 0
    async with asyncio.timeout(LIMIT_S):
        while (await shell.get(port, "/admin/nodes"))["data"][1]["state"] != "online":
            await pause()
    status = await shell.start("status", *here)
    assert await status.ends() == 0
    assert status.text.count("online") == 2
    assert "second" in status.text


async def test_a_self_check_that_fails_ends_the_command_and_says_why(
    shell: Shell, tmp_path: Path
) -> None:
    """One byte that nobody holds is enough."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys; from forebay.wire.server import Server; from forebay.cli.main import main\n"
        "made = Server.__init__\n"
        "def add_a_byte(self, *given): made(self, *given); self.budget.used_bytes += 1\n"
        "Server.__init__ = add_a_byte; sys.exit(main())"
    )
    options = ("serve", "--port", "0", "--node", "http://127.0.0.1:9", "--self-check")
    gateway = await shell.start(*options, cwd=tmp_path, script=broken)
    assert await gateway.ends() == 1
    assert "1 bytes of bodies are counted, 0 are held" in gateway.text
    assert "Traceback" not in gateway.text


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stream", ["<&-", ">&-"])
async def test_a_gateway_serves_without_a_standard_stream(
    shell: Shell, stream: str, workers: int
) -> None:
    words = f'exec "{COMMAND}" serve --port 0 --simulate --set server.workers={workers} {stream}'
    gateway = await shell.start_program("bash", "-c", words)
    assert (await shell.get(await listening_port(gateway), "/health"))["status"] == "ok"
    gateway.signal(signal.SIGTERM)
    assert await gateway.ends() == 0
