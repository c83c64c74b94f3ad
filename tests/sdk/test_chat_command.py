"""`forebay chat` from a pipe and in a real terminal, against a scripted gateway."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings.environment import current_environment
from harness.preloaded import COMMAND, ForkedCommand

from .conftest import piece, say
from .scripted_server import SESSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typer.testing import Result

    from .conftest import Place
    from .scripted_server import Exchange, ScriptedServer

LIMIT_S = 30.0  # only turns a hang into a failure
PROMPT = f"/session/{SESSION}/prompt"
MODELS = {"data": [{"id": "m"}, {"id": "other"}]}


def echo(server: ScriptedServer) -> None:
    """Let the server say everything again, in two pieces."""

    async def obey(exchange: Exchange) -> None:
        said = exchange.asked.json["prompt"]
        prompt_id = await server.accept(exchange)
        if said == "fail":
            error = {"code": "node_failed", "message": "the node failed"}
            server.emit("turn_error", prompt_id, status="failed", error=error)
            return
        server.emit("reasoning_delta", prompt_id, text="hm")
        server.emit("text_delta", prompt_id, text="you said \x1b[2J")
        server.emit("text_delta", prompt_id, text=said)
        server.complete(prompt_id, f"you said \x1b[2J{said}")

    server.on_prompt = obey


@pytest.fixture
def talker(server: ScriptedServer) -> ScriptedServer:
    server.plan("GET", "/v1/models", MODELS)
    echo(server)
    return server


async def chat(url: str, *words: str, typed: str = "") -> Result:
    asked = ["chat", "--url", url, *words]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, asked, input=typed))


# -- from a pipe


async def test_each_line_of_a_pipe_is_a_prompt_and_the_answers_are_plain(
    talker: ScriptedServer,
) -> None:
    done = await chat(talker.url, "--system", "be brief", typed="one\n\n/quit is no command here\n")
    assert done.exit_code == 0
    assert done.stdout == "you said ?[2Jone\nyou said ?[2J/quit is no command here\n"
    assert "Talking with m in session s1." in done.stderr
    assert "forebay chat --session s1 --url" in done.stderr
    made = next(asked for asked in talker.asked if asked.path == "/session")
    assert made.json == {"model": "m", "system": "be brief"}


async def test_a_turn_that_fails_is_told_and_counts(talker: ScriptedServer) -> None:
    done = await chat(talker.url, typed="fail\ntwo\n")
    assert done.exit_code == 1
    assert "the node failed (node_failed)" in done.stderr
    assert done.stdout == "you said ?[2Jtwo\n"


async def test_a_session_of_before_is_taken_up(talker: ScriptedServer) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    talker.plan("GET", f"/session/{SESSION}/messages", {"messages": messages})
    done = await chat(talker.url, "--session", SESSION, typed="more\n")
    assert (done.exit_code, done.stdout) == (0, "you said ?[2Jmore\n")
    assert talker.count("POST", "/session") == 0


async def test_a_session_in_which_nothing_was_said_is_not_left_behind(
    talker: ScriptedServer,
) -> None:
    talker.plan("DELETE", f"/session/{SESSION}", {"sessionId": SESSION, "state": "closed"})
    done = await chat(talker.url)
    assert done.exit_code == 0
    assert "To come back" not in done.stderr
    assert talker.count("DELETE", f"/session/{SESSION}") == 1


async def test_what_is_wrong_is_said_with_the_usual_status(server: ScriptedServer) -> None:
    gone = {"error": {"code": "session_not_found", "message": "no such session"}}
    server.plan("GET", "/session/a%2Fb", gone, 404)
    done = await chat(server.url, "--session", "a/b")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no such session (session_not_found). Without --session" in done.stderr
    server.plan("GET", "/v1/models", {"error": {"code": "unauthorized", "message": "no"}}, 401)
    done = await chat(server.url)
    assert done.exit_code == 4
    assert "Name a key with --key-env VAR, or set" in done.stderr
    server.plan("GET", "/v1/models", {"data": []})
    done = await chat(server.url)
    assert (done.exit_code, "forebay nodes add" in done.stderr) == (1, True)
    assert (await chat(server.url, "--session", "s", "--system", "x")).exit_code == 2
    server.plan("GET", f"/session/{SESSION}/messages", {"messages": []})
    done = await chat(server.url, "--session", SESSION, "--model", "other")
    assert (done.exit_code, "is with m" in done.stderr) == (2, True)
    assert (await chat("ftp://x")).exit_code == 2


async def test_letters_that_are_none_end_no_talk(talker: ScriptedServer) -> None:
    def run() -> subprocess.CompletedProcess[bytes]:
        words = ["env", "PYTHONIOENCODING=latin-1", COMMAND, "chat", "--url", talker.url]
        return subprocess.run(
            words, input="caf\xe9 \N{SNOWMAN}\n".encode(), capture_output=True, timeout=LIMIT_S
        )

    done = await asyncio.to_thread(run)
    assert (done.returncode, done.stderr[-1:]) == (0, b"\n")
    assert done.stdout.startswith(b"you said ?[2Jcaf")


def test_other_commands_do_not_load_what_only_this_one_needs() -> None:
    look = "import sys, forebay.cli.main; assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-c", look], check=True)


# -- in a terminal


class Terminal:
    """Somebody at a terminal."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        variables = {**current_environment(), "TERM": "xterm", "COLUMNS": "100"}
        self._child = ForkedCommand(
            ["chat", *words], [theirs] * 3, variables=variables, in_session=True
        )
        os.close(theirs)
        self.text = ""
        self._read_to = 0
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    async def sees(self, what: str) -> str:
        """Wait until that is shown, after what was seen before; return what came till then."""
        async with asyncio.timeout(LIMIT_S):
            while (end := self.text.find(what, self._read_to)) < 0:
                self._changed.clear()
                try:
                    await self._changed.wait()
                except asyncio.CancelledError:
                    raise AssertionError(f"{what!r} is not in {self.text!r}") from None
        before, self._read_to = self.text[self._read_to : end], end + len(what)
        return before

    async def ends(self) -> int:
        return await asyncio.to_thread(self._child.ends, LIMIT_S)

    def close(self) -> None:
        self._child.kill()
        self._child.ends()
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)

    def _read(self) -> None:
        try:
            self.text += os.read(self._ours, 65536).decode()
        except OSError:  # the other side is gone
            asyncio.get_running_loop().remove_reader(self._ours)
        self._changed.set()


@pytest.fixture
async def terminal(talker: ScriptedServer) -> AsyncIterator[Terminal]:
    terminal = Terminal("--url", talker.url)
    await terminal.sees("> ")
    yield terminal
    terminal.close()


async def test_the_place_in_line_is_shown_and_disappears(
    talker: ScriptedServer, terminal: Terminal
) -> None:
    assert "Talking with m in session s1." in terminal.text
    talker.on_prompt = None
    terminal.type("hello\n")
    await talker.until(lambda: talker.count("POST", PROMPT))
    added: dict[str, Any] = {"position": 3, "estimatedWaitSeconds": 12, "waitsFor": "queue"}
    talker.emit("pending_prompt_added", "p1", **added)
    await terminal.sees("in line: place 3, about 12 s")
    place = {"id": "p1", "state": "waiting", "position": 2}
    place["estimated_wait_seconds"] = {"p50": 7.5, "p90": 9}
    talker.plan("GET", "/v1/queue/p1", place)
    await terminal.sees("\r\x1b[2K\x1b[2min line: place 2, about 7.5 s")
    talker.emit("pending_prompt_started", "p1", node="n1", waitedMs=12)
    talker.emit("reasoning_delta", "p1", text="hm")
    await terminal.sees("\r\x1b[2K")
    await terminal.sees("\x1b[2mhm")
    talker.emit("text_delta", "p1", text="hel")
    await terminal.sees("\x1b[0m\r\nhel")
    talker.complete("p1", "hello")
    await terminal.sees("lo\r\n> ")
    terminal.type("\x04")
    await terminal.sees("forebay chat --session s1 --url")
    assert await terminal.ends() == 0


async def test_ctrl_c_ends_the_turn_and_a_second_one_leaves(
    talker: ScriptedServer, terminal: Terminal
) -> None:
    talker.on_prompt = None
    conflict = {"error": {"code": "conflict", "message": "it runs"}}
    state = {"sessionId": SESSION, "model": "m", "activePromptId": "p1"}
    talker.plan("DELETE", f"/session/{SESSION}/pending-prompts/p1", conflict, 409)
    terminal.type("hello\n")
    await talker.until(lambda: talker.count("POST", PROMPT))
    talker.emit("text_delta", "p1", text="never en")
    await terminal.sees("never en")
    talker.plan("GET", f"/session/{SESSION}", state)
    talker.plan("POST", f"/session/{SESSION}/cancel", {"promptId": "p1", "cancelled": True})
    terminal.type("\x03")
    await talker.until(lambda: talker.count("POST", f"/session/{SESSION}/cancel"))
    error = {"code": "cancelled", "message": "cancelled"}
    talker.emit("turn_error", "p1", status="cancelled", error=error)
    await terminal.sees("(cancelled; Ctrl-C again leaves)")
    await terminal.sees("> ")
    terminal.type("again\n")
    await talker.until(lambda: talker.count("POST", PROMPT) == 2)
    removed = {"promptId": "p2", "removed": True}
    talker.plan("DELETE", f"/session/{SESSION}/pending-prompts/p2", removed)
    terminal.type("\x03")
    await talker.until(lambda: talker.count("DELETE", f"/session/{SESSION}/pending-prompts/p2"))
    terminal.type("\x03")
    await terminal.sees("To come back")
    assert await terminal.ends() == 130


async def test_every_line_is_a_prompt(terminal: Terminal) -> None:
    terminal.type("/help is a prompt, \\\nand this a second line\n")
    await terminal.sees("you said ?[2J/help is a prompt, \r\nand this a second line\r\n> ")
    terminal.type("fail\n")
    await terminal.sees("(the turn failed: the node failed (node_failed))")
    await terminal.sees("> ")
    terminal.type("\x03")
    terminal.type("\n")  # Python sees a Ctrl-C that comes just before it waits with the next key
    await terminal.sees("(Ctrl-C again leaves)")
    await terminal.sees("> ")
    terminal.type("\x04")
    await terminal.sees("forebay chat --session s1")
    assert await terminal.ends() == 0


async def test_with_the_real_gateway_ctrl_c_ends_what_waits_and_what_runs(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    in_the_way = asyncio.ensure_future(client.chat("m", "in the way"))
    call = await node.next_call()
    terminal = Terminal("--url", place.url)
    try:
        await terminal.sees("> ")
        terminal.type("hello\n")
        await terminal.sees("in line: place 1")
        terminal.type("\x03")
        await terminal.sees("(cancelled; Ctrl-C again leaves)")
        assert (await client.queue()).waiting == 0
        await say(call, "done")
        await in_the_way
        await terminal.sees("> ")
        terminal.type("again\n")
        call = await node.next_call()
        await call.start_stream()
        await call.chunk(piece("never en"))
        await terminal.sees("never en")
        terminal.type("\x03")
        await call.gone()
        await terminal.sees("(cancelled; Ctrl-C again leaves)")
        await terminal.sees("> ")
        terminal.type("once more\n")
        await say(await node.next_call(), "fine")
        await terminal.sees("fine\r\n> ")
        terminal.type("\x04")
        await terminal.sees("forebay chat --session ")
        assert await terminal.ends() == 0
    finally:
        terminal.close()


async def test_what_the_gateway_advises_is_passed_on(server: ScriptedServer) -> None:
    error = {"code": "model_not_found", "message": "no such model", "hint": "See `/v1/models`."}
    server.plan("POST", "/session", {"error": error}, 404)
    done = await chat(server.url, "--model", "m")
    assert done.exit_code == 1
    assert "no such model (model_not_found). See `/v1/models`." in done.stderr
