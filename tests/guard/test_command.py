"""`forebay node` as people start it: options, what it says, and signals."""

from __future__ import annotations

import signal
import socket
import subprocess

import httpx
import pytest
from typer.testing import CliRunner

from forebay.cli import exits
from forebay.cli.main import app
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from harness.preloaded import COMMAND

from .child import ended, guard

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


async def test_the_command_guards_until_it_is_told_to_stop_and_lets_a_stream_finish() -> None:
    sim = SimNode(SimOptions(models=("m",), slots=1, ttft_s=0.0, tokens_per_second=20.0))
    await sim.start()
    try:
        async with guard("--backend", sim.url) as (child, url):
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30.0) as client:
                status = (await client.get("/guard/status")).json()
                assert (status["state"], status["kind"], status["slots"]) == ("idle", "sim", 1)
                asked = {**CHAT, "max_tokens": 20}
                async with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
                    lines = answer.aiter_lines()
                    await anext(lines)
                    second = await client.post("/v1/chat/completions", json=asked)
                    assert (second.status_code, second.headers["retry-after"]) == (429, "1")
                    assert second.json()["error"]["code"] == "node_busy"
                    child.send_signal(signal.SIGTERM)
                    rest = [line async for line in lines]
                assert rest[-2:] == ["data: [DONE]", ""] or rest[-1] == "data: [DONE]"
            assert await ended(child) == exits.DONE
    finally:
        await sim.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backend", "nonsense"], ["--backend nonsense", "http"]),
        (["--backend", "http://b:1/v1"], ["--backend http://b:1/v1", "leave out the path"]),
        (["--backend", "http://b:1", "--gateway", "x"], ["--gateway x"]),
        (["--backend", "http://b:1", "--gateway", "http://g:1"], ["needs --token-env"]),
        (["--backend", "http://b:1", "--token-env", "UNSET_HERE"], ["UNSET_HERE is not set"]),
        (["--backend", "http://b:1", "--name", "a b"], ["--name a b", "plain name"]),
        (["--backend", "http://b:1", "--model-slots", "bge-*=x"], ["--model-slots bge-*=x"]),
        (
            ["--backend", "http://b:1", "--gateway", "http://gw1:7800", "--token-env", "PATH"],
            ["cannot reach 127.0.0.1", "--host 0.0.0.0 --advertise"],
        ),
        (
            [
                "--backend", "http://b:1", "--gateway", "http://gw1:7800", "--token-env", "PATH",
                "--host", "0.0.0.0", "--port", "0",
            ],
            ["--port 0", "--advertise"],
        ),
        ([], ["--backend"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(options: list[str], words: list[str]) -> None:
    done = CliRunner().invoke(app, ["node", *options])
    assert done.exit_code == exits.USAGE
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [COMMAND, "node", "--backend", "http://127.0.0.1:9", "--port", port],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == exits.FAILED
    assert "another program does. Use another port: " in done.stderr
    assert "forebay node --port" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_backend_that_is_not_there_yet_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        url = f"http://127.0.0.1:{placeholder.getsockname()[1]}"
    async with guard("--backend", url) as (child, guarding):
        async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
            status = (await client.get(f"{guarding}/guard/status")).json()
        assert status["state"] == "offline"
        child.send_signal(signal.SIGINT)
        assert await ended(child) == exits.DONE
