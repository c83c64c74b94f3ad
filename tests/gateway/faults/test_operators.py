"""Rows 38, 64 and 68: stopping, revoking a key, a settings file with a mistake."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from forebay.cli.serve.server import _obey
from forebay.settings import load_settings

from .conftest import ADMIN, EVENT, FIRST, SECOND, bearer, key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from forebay.testing import Reply

    from .conftest import FaultRig


def code(reply: Reply) -> str:
    return str(reply.json["error"]["code"])


@pytest.fixture(autouse=True)
async def signals_as_they_were() -> AsyncIterator[None]:
    """Give the signals back: other tests of this process send some, too."""
    yield
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)


async def stop_on_signal(rig: FaultRig) -> None:
    """Do what `forebay serve` does: wait for a signal, then stop."""
    stop = asyncio.Event()
    _obey(rig.gateway, stop)
    await stop.wait()
    await rig.gateway.stop()


async def test_fault_38_sigterm_answers_who_waits_and_lets_finish_what_runs(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    status = await rig.client()  # made before: those who ask for health keep their connection
    running = await rig.ask(stream=True)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(EVENT)
    waiters = [await rig.ask(stream=bool(number % 2)) for number in range(6)]
    await rig.wait_until("waiting", 6)
    stopping = asyncio.ensure_future(stop_on_signal(rig))
    await rig.queue()
    os.kill(os.getpid(), signal.SIGTERM)
    for waiter in waiters:  # at once: no time passes
        reply = await waiter.reply()
        assert (reply.status, code(reply)) == (503, "shutting_down")
        assert int(reply.headers["retry-after"]) >= 1
    for path, expected in (("/health", 200), ("/ready", 503)):
        await status.get(path)
        assert (await status.reply()).status == expected
    await status.post("/v1/chat/completions", {"model": "m"})
    late = await status.reply()
    assert (late.status, code(late)) == (503, "shutting_down")
    assert not stopping.done()
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert (await running.reply()).body == EVENT + b"data: [DONE]\n\n"
    await stopping
    assert await running.closed() == b""
    assert len(node.calls) == 1


@pytest.mark.parametrize("again", ["a second signal", "the deadline"])
async def test_fault_38_what_does_not_finish_in_time_is_told_and_aborted(
    rig: FaultRig, again: str
) -> None:
    node = await rig.node(slots=2)
    limit_s = 0.0 if again == "the deadline" else 1000.0
    await rig.start(node, server={"shutdown_seconds": limit_s})
    unary, stream = await rig.ask(), await rig.ask(stream=True)
    calls = [await node.next_call() for _ in range(2)]
    streamed = next(call for call in calls if call.json.get("stream"))
    await streamed.start_stream()
    await streamed.chunk(EVENT)
    assert (await stream.head()).status == 200
    assert await stream.chunk() == EVENT
    stopping = asyncio.ensure_future(stop_on_signal(rig))
    await rig.queue()
    os.kill(os.getpid(), signal.SIGTERM)
    if again == "a second signal":
        await rig.until(lambda: rig.gateway.parts.readiness.draining, "the signal was not heard")
        assert not stopping.done()
        os.kill(os.getpid(), signal.SIGTERM)
    reply = await unary.reply()
    assert (reply.status, code(reply)) == (503, "shutting_down")
    told = await stream.chunk() or b""
    assert b'"shutting_down"' in told
    assert b"[DONE]" not in told
    await stopping
    for call in calls:
        await call.gone()


async def test_fault_64_who_waits_with_a_key_that_is_revoked_gets_401_and_never_runs(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    keys = [key("first"), key("second"), key("admin", admin=True)]
    await rig.start(node, keys=keys)
    first = await rig.ask(mark="runs", headers=bearer(FIRST))
    running = await node.next_call()
    revoked = [await rig.ask(stream=s, headers=bearer(FIRST)) for s in (False, True)]
    other = await rig.ask(mark="other", headers=bearer(SECOND))
    await rig.wait_until("waiting", 3)
    rig.given["keys"] = keys[1:]
    reply = await rig.get("/admin/reload", bearer(ADMIN), "POST")
    assert (reply.status, reply.json) == (200, {"changed": ["keys.first"]})
    for client in revoked:
        reply = await client.reply()
        assert (reply.status, code(reply)) == (401, "unauthorized")
        await client.post("/v1/chat/completions", {"model": "m"}, bearer(FIRST))
        assert (await client.reply()).status == 401  # nor does the connection remember it
    await running.answer({})
    assert (await first.reply()).status == 200  # what ran may finish
    call = await node.next_call()
    assert call.json["mark"] == "other"
    await call.answer({})
    assert (await other.reply()).status == 200
    assert len(node.calls) == 2


async def test_fault_64_a_request_that_came_back_from_a_node_is_turned_away_too(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    keys = [key("first"), key("admin", admin=True)]
    await rig.start(node, keys=keys)
    client = await rig.ask(headers=bearer(FIRST))
    await (await node.next_call()).answer({}, status=429, headers={"retry-after": "5"})
    await rig.wait_until("waiting", 1)
    rig.given["keys"] = keys[1:]
    assert (await rig.get("/admin/reload", bearer(ADMIN), "POST")).status == 200
    reply = await client.reply()
    assert (reply.status, code(reply)) == (401, "unauthorized")
    rig.clock.advance(10.0)
    await rig.wait_until("processing", 0)
    assert len(node.calls) == 1


async def test_fault_64_a_key_whose_text_changes_is_revoked_as_well(rig: FaultRig) -> None:
    node = await rig.node()
    keys = [key("first"), key("admin", admin=True)]
    await rig.start(node, keys=keys)
    await rig.ask(headers=bearer(FIRST))
    await node.next_call()
    client = await rig.ask(headers=bearer(FIRST))
    await rig.wait_until("waiting", 1)
    rig.given["keys"] = [{"name": "first", "key_env": "SECOND"}, keys[1]]
    assert (await rig.get("/admin/reload", bearer(ADMIN), "POST")).status == 200
    assert (await client.reply()).status == 401


BAD_FILES = {
    "not TOML": "[queue\nmax_size = 7",
    "an unknown key": "[queue]\nmax_sise = 7",
    "a wrong type": '[queue]\nmax_size = "many"',
    "a key without its secret": '[queue]\nmax_size = 7\n[[keys]]\nname = "k"\nkey_env = "NOT_SET"',
    "what needs a restart": "[queue]\nmax_size = 7\n[server]\nport = 1",
    "nonsense": "\0\xff",
}


@pytest.mark.parametrize("how", ["route", "signal"])
@pytest.mark.parametrize("mistake", BAD_FILES)
async def test_fault_68_a_bad_settings_file_changes_nothing_and_is_loud(
    rig: FaultRig, tmp_path: Path, mistake: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = await rig.node()
    file = tmp_path / "forebay.toml"
    good = f'[[nodes]]\nname = "n1"\nurl = "{node.url}"\n[server]\nport = 0\n'
    file.write_text(good)
    rig.read_settings = lambda: load_settings(file, environ={})  # type: ignore[method-assign]
    await rig.start()
    _obey(rig.gateway, asyncio.Event())
    waiting_before = (await rig.queue())["max_size"]
    bad = BAD_FILES[mistake]
    file.write_text(bad if "[server]" in bad else good + bad)
    rig.expected_errors.append("settings NOT reloaded")
    if how == "route":
        reply = await rig.get("/admin/reload", method="POST")
        assert (reply.status, code(reply)) == (400, "invalid_request")
        assert len(reply.json["error"]["message"]) > 10
    else:
        os.kill(os.getpid(), signal.SIGHUP)
        await rig.until(lambda: "NOT reloaded" in caplog.text, "nothing was said")
    assert "settings NOT reloaded, the old ones stay" in caplog.text
    assert (await rig.queue())["max_size"] == waiting_before == 100
    client = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200
    file.write_text(good + "[queue]\nmax_size = 7\n")
    assert (await rig.get("/admin/reload", method="POST")).json == {"changed": ["queue.max_size"]}
    assert (await rig.queue())["max_size"] == 7
