"""One line per request: ids and timings, and nothing that anyone said."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.hot.access_record import AccessRecord, short_lines
from forebay.gateway.hot.ended import EndedBatch, EndedRequest
from forebay.gateway.logs import BUFFER_BYTES, LINE_BYTES, Outlet, OutletStream

from ..conftest import OK
from .test_users_and_keys import A, key, start

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import Rig


class Kept(io.BytesIO):
    """A stream that can be read after it was closed."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


async def lines_of(rig: Rig, kept: Kept) -> list[dict[str, Any]]:
    """Stop the gateway, which writes what is left, and return all lines."""
    await rig.gateway.stop(0.0)
    return kept.lines


async def test_a_served_request_is_one_line_with_its_timings(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    await rig.start(node, log=AccessLog(Outlet(kept.write)))
    _, call = await rig.run(node)
    [client] = await rig.line_up(1, headers={"X-Request-Id": "mine"}, stream=True)
    rig.clock.advance(2.0)
    await call.answer(OK)
    call = await node.next_call()
    rig.clock.advance(1.0)
    await call.start_stream()
    await call.chunk(b"data: 1\n\n")
    await client.head()
    rig.clock.advance(3.0)
    await call.end()
    await client.chunk()
    await client.chunk()
    line = (await lines_of(rig, kept))[-1]
    assert line["time"].startswith("2030-01-01T")
    assert (line["id"], line["route"]) == ("mine", "/v1/chat/completions")
    assert (line["outcome"], line["status"], line["node"]) == ("served", 200, "n1")
    assert (line["model"], line["priority"]) == ("m", "normal")
    assert (line["stream"], line["queued"], line["attempt"]) == (True, True, 1)
    timings = (line["waited_ms"], line["first_byte_ms"], line["run_ms"])
    assert timings == (2000, 1000, 4000)
    assert (line["request_bytes"], line["answer_bytes"]) == (len(call.body), 9)


async def test_at_a_terminal_a_request_is_a_short_line_for_people(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    log = AccessLog(Outlet(kept.write), short_lines)
    await rig.start(node, queue={"max_size": 1}, log=log)
    _, call = await rig.run(node)
    await rig.line_up(1)
    await (await rig.ask()).reply()
    rig.clock.advance(2.0)
    await call.answer(OK)
    call = await node.next_call()
    rig.clock.advance(1.5)
    await call.answer({"error": "no"}, 400)
    await rig.wait_until("processing", 0)
    await rig.gateway.stop(0.0)
    lines = [line.split(" ", 1) for line in kept.getvalue().decode().splitlines()]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", at) for at, _ in lines)
    assert [rest for _, rest in lines] == [
        "/v1/chat/completions queue_full",
        "/v1/chat/completions completed: m on n1, took 2.0 s",
        "/v1/chat/completions passed_through: m on n1, status 400, waited 2.0 s, took 1.5 s",
    ]


def test_a_name_from_a_node_cannot_draw_on_the_terminal() -> None:
    line = AccessRecord(
        "2030-01-01T00:00:00+00:00", "/v1/completions", "served", model="m\x1b[2J", node="n"
    )
    assert short_lines([line]).endswith(b" /v1/completions completed: m?[2J on n\n")


async def test_every_request_is_one_line_however_it_ends(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    await rig.start(node, queue={"max_size": 1}, log=AccessLog(Outlet(kept.write)))
    _, call = await rig.run(node)
    [late] = await rig.line_up(1)
    await (await rig.ask()).reply()
    await (await rig.ask(model="nowhere")).reply()
    await (await rig.ask(stream="bad")).reply()
    rig.clock.advance(60.0)
    await late.reply()
    await call.answer({"error": "no"}, 400)
    await rig.wait_until("processing", 0)
    outcomes = [line["outcome"] for line in await lines_of(rig, kept)]
    assert outcomes == [
        "queue_full", "model_not_found", "invalid_request", "queue_timeout", "passed_through"
    ]  # fmt: skip


async def test_no_prompt_no_key_no_user_and_no_invented_model_is_logged(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    log = AccessLog(Outlet(kept.write))
    await start(rig, node, keys=[key("a", user="user-hidden")], log=log)
    client, call = await rig.run(node, headers=A, user="hidden", prompt="hidden words")
    await call.answer({"choices": ["hidden answer"]})
    await client.reply()
    await (await rig.ask(headers=A, model="hidden-model")).reply()
    await (await rig.ask(headers={"Authorization": "Bearer sk-hidden"})).reply()
    lines = await lines_of(rig, kept)
    assert len(lines) == 3
    assert "hidden" not in kept.getvalue().decode()
    assert "sk-" not in kept.getvalue().decode()


async def test_a_line_has_what_a_replay_needs_and_refusals_have_it_too(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    await rig.start(node, queue={"max_size": 1}, log=AccessLog(Outlet(kept.write)))
    began_s = rig.clock.utc().timestamp()
    _, call = await rig.run(node, user="alice")
    rig.clock.advance(1.0)
    headers = {"X-Forebay-Max-Wait": "5"}
    [late] = await rig.line_up(1, user="bob", headers=headers, max_tokens=7)
    rig.clock.advance(0.5)
    await (await rig.ask(user="alice")).reply()
    rig.clock.advance(4.5)
    await late.reply()
    await call.answer(OK)
    await rig.wait_until("processing", 0)
    refused, expired, served = await lines_of(rig, kept)
    arrived = [round(line["arrived"] - began_s, 3) for line in (served, expired, refused)]
    assert arrived == [0.0, 1.0, 1.5]
    assert served["user_hash"] == refused["user_hash"] != expired["user_hash"]
    assert (expired["max_wait_ms"], expired["output_limit"]) == (5000, 7)
    assert "model" not in refused
    assert served["model"] == "m"
    assert refused["prompt_tokens"] > 0


async def test_the_model_of_a_refused_request_is_told_once_it_has_run(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    await rig.start(node, queue={"max_size": 0}, log=AccessLog(Outlet(kept.write)))
    client, call = await rig.run(node)
    await call.answer(OK)
    await client.reply()
    await rig.run(node)
    await (await rig.ask()).reply()
    await (await rig.ask(model="hidden")).reply()
    lines = await lines_of(rig, kept)
    assert [line.get("model") for line in lines[:3]] == ["m", "m", None]


async def test_lines_are_written_once_per_tick_and_not_per_request(rig: Rig) -> None:
    node, kept = await rig.node(), Kept()
    await rig.start(node, log=AccessLog(Outlet(kept.write)))
    for _ in range(3):
        client, call = await rig.run(node)
        await call.answer(OK)
        await client.reply()
    assert kept.getvalue() == b""
    assert len(await lines_of(rig, kept)) == 3


def test_more_lines_than_can_be_kept_are_dropped_and_counted_in_the_next() -> None:
    kept, written = Stuck(), BUFFER_BYTES // LINE_BYTES
    outlet = Outlet(kept.write)
    log = AccessLog(outlet)
    for size in (1, written - 1, 3, 12):
        log.take(batch(size))
    kept.may_write.set()
    while outlet._waiting_bytes:
        assert kept.may_write.wait(1.0)
    log.take(batch(1))
    log.stop()
    assert outlet.dropped == 15
    assert [line.get("lines_dropped", 0) for line in kept.lines] == [0] * written + [15]


def test_a_stream_that_cannot_be_written_costs_lines_and_nothing_else() -> None:
    kept = Kept()
    outlet = Outlet(kept.write)
    log = AccessLog(outlet)
    kept.close()
    log.take(batch(1))
    log.stop()
    assert outlet.dropped == 1


def test_the_line_that_gets_through_counts_all_that_were_lost_before() -> None:
    kept, is_full = Kept(), True

    def write(data: bytes) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "full")
        kept.write(data)

    outlet = Outlet(write)
    for number in range(4):
        is_full = number < 3
        AccessLog(outlet).take(batch(1))
        while outlet._waiting_bytes:
            threading.Event().wait(0.001)
    outlet.close()
    assert [line["lines_dropped"] for line in kept.lines] == [3]


def test_a_line_of_which_a_part_was_written_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write, room = tmp_path / "log", os.write, [2]

    def write_some(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        room[0], part = max(0, room[0] - len(data)), data[: room[0]]
        return write(descriptor, part)

    monkeypatch.setattr(os, "write", write_some)
    with path.open("wb") as file:
        stream = OutletStream(file.fileno())
        for text in (b"one\n", b"two\n"):
            with pytest.raises(OSError, match="full"):
                stream._write_lines(text)
        room[0] = 100
        stream._write_lines(b"three\n")
        stream._write_lines(b"four\n")
    assert path.read_bytes() == b"on\nthree\nfour\n"


def batch(size: int) -> EndedBatch:
    refused = EndedRequest("/v1/chat/completions", "queue_full", None, 1.0)
    return EndedBatch([refused] * size, datetime(2030, 1, 1, tzinfo=UTC), 0.0)


class Stuck(Kept):
    """A stream that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()

    def write(self, data: Any, /) -> int:
        self.may_write.wait()
        return super().write(data)
