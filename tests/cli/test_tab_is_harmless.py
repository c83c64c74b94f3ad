"""The Tab key in a real interactive shell: a name from a gateway never becomes a command."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    Serve = Callable[["Listed"], Awaitable[str]]

LIMIT_S = 60.0
PROMPT, DONE = "ready> ", "all-typed"


class Bash:
    """A bash at a terminal of its own."""

    def __init__(self, folder: Path, commands: str) -> None:
        self._read = ""
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            path = f"{commands}:{os.defpath}"
            environ = {"PATH": path, "PS1": PROMPT, "TERM": "dumb", "HOME": str(folder)}
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environ)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, mark: str) -> str:
        """Return what is shown up to the mark."""
        end = SystemClock().monotonic_s() + LIMIT_S
        while mark not in self._read:
            left = end - SystemClock().monotonic_s()
            assert left > 0, f"{mark!r} did not come: {self._read!r}"
            if select.select([self._terminal], [], [], left)[0]:
                self._read += os.read(self._terminal, 65_536).decode(errors="replace")
        shown, _, self._read = self._read.partition(mark)
        return shown

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self._pid, 0)


class Listed:
    """What answers everything like a gateway with such a list."""

    def __init__(self, listed: Sequence[object]) -> None:
        self._body = json.dumps({"data": listed}).encode()
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(self._body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + self._body)
        await writer.drain()
        writer.close()


class Models(Listed):
    """What answers like a gateway whose models have these names."""

    def __init__(self, *names: str) -> None:
        super().__init__([{"id": name} for name in names])


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[asyncio.Server] = []

    async def started(models: Listed) -> str:
        servers.append(await asyncio.start_server(models.answer, "127.0.0.1", 0))
        return f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield started
    for server in servers:
        server.close()


def typed_in_bash(folder: Path, commands: str, *lines: str) -> list[list[str]]:
    """Type each line, Tab and Enter; return the words that the commands were given."""
    bash, given = Bash(folder, commands), []
    try:
        bash.until(PROMPT)
        bash.type("bind 'set enable-bracketed-paste off'; source <(forebay completion bash)\n")
        bash.until(PROMPT)
        # The real command completes; what Enter runs only tells what it was given.
        bash.type(
            "complete -F _by_command shown; shown() { printf '%s\\n' \"$@\" > words; };"
            ' _by_command() { _forebay_completion forebay "$2"; }\n'
        )
        bash.until(PROMPT)
        for line in lines:
            bash.type(f"{line}\t {DONE}\n")
            bash.until(PROMPT)
            given.append((folder / "words").read_text().split("\n")[:-1])
            (folder / "words").unlink()
    finally:
        bash.close()
    return given


HOSTILE = (
    "$(touch${IFS}pwned)",
    "`touch${IFS}pwned`",
    "m;touch${IFS}pwned",
    "m&touch${IFS}pwned",
    "m\ntouch pwned",
    "m>pwned",
    "m'x",
    "~root",
    "--key-env=HOME",
    "=ls",
    "{a,b}",
    "m*",
    "!!",
)


async def test_no_name_of_a_model_is_run_by_bash(
    serve: Serve, tmp_path: Path, quick_bin: str
) -> None:
    models = [Models(name) for name in HOSTILE]
    lines = [f"shown chat --url {await serve(each)} --model " for each in models]
    given = await asyncio.to_thread(typed_in_bash, tmp_path, quick_bin, *lines)
    assert [each.asked for each in models] == [1] * len(HOSTILE)
    assert not (tmp_path / "pwned").exists()
    assert {tuple(words[3:]) for words in given} == {("--model", DONE)}


TYPED = {
    "lla": "llama3:8b-q4_K_M",
    "llama3:8": "llama3:8b-q4_K_M",
    "org/m": "org/model@sha256:0a",
    "org/model@s": "org/model@sha256:0a",
    "org/model@sha256:": "org/model@sha256:0a",
    "a=": "a=b,c+d",
    '"llama3:': "llama3:8b",
}


async def test_ordinary_names_are_completed_in_bash(
    serve: Serve, tmp_path: Path, quick_bin: str
) -> None:
    lines = [
        f"shown chat --url {await serve(Models(name))} --model {typed}"
        for typed, name in TYPED.items()
    ]
    given = await asyncio.to_thread(typed_in_bash, tmp_path, quick_bin, *lines)
    assert [words[4:] for words in given] == [[name, DONE] for name in TYPED.values()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_only_names_that_mean_themselves_are_offered(serve: Serve, shell: str) -> None:
    url = await serve(Models(*HOSTILE, "plain/name@1"))
    line = f"forebay chat --url {url} --model "
    environ = {
        "_FOREBAY_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": f"{line}''",
        "COMP_CWORD": "-1",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    asked = CliRunner(env=environ)
    done = await asyncio.to_thread(lambda: asked.invoke(app, prog_name="forebay"))
    plain = "plain/name@1"
    offered = f"_arguments '*: :((\"{plain}\"))'" if shell == "zsh" else plain
    assert done.stdout == f"{offered}\n"


async def test_no_word_of_a_gateway_beside_a_name_is_offered_unless_it_is_plain(
    serve: Serve,
) -> None:
    evil = '\\";touch pwned;"'
    nodes = [{"name": "n1", "state": evil}, {"name": "n2", "state": "online"}, evil, {"name": 1.5}]
    url = await serve(Listed(nodes))
    environ = {
        "_FOREBAY_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": f"forebay nodes drain --url {url} ",
    }
    asked = CliRunner(env=environ)
    done = await asyncio.to_thread(lambda: asked.invoke(app, prog_name="forebay"))
    assert done.stdout == '_arguments \'*: :(("n1"\n"n2":"online"))\'\n'
    assert done.stderr == ""
