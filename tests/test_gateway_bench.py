"""The parts of `bench.gateway` that measure nothing: figures over starts, tables, the history."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING

import httptools
import pytest
from rich.console import Console

from bench.gateway import history, payload, payloads, report
from bench.gateway.bare_relay import Client, Relay
from bench.gateway.gateways import GATEWAYS
from bench.gateway.limits import is_in_time
from bench.gateway.variations import VARIATIONS
from bench.recordings import Recording, recording, recordings
from bench.recordings.answers import ANSWERS, STAMP
from forebay.testing import FakeNode, RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rich.table import Table


def figures(per_cpu_s: float) -> dict[str, object]:
    """Return what a round gives."""
    rest = {"per_second": 1.0, "core_busy": 1.0, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0}
    return {"per_cpu_s": per_cpu_s, **rest}


def start(haproxy: float, bare: float, own: float) -> payloads.Start:
    names = ("haproxy", "bare relay", "forebay")
    rounds = zip(names, map(figures, (haproxy, bare, own)), strict=True)
    return {"chat": dict(rounds)}


STARTS = [start(100, 50, 40), start(200, 50, 40), start(100, 50, 10)]


def text_of(table: Table) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def test_a_ratio_is_taken_within_a_start_and_its_median_over_starts() -> None:
    ours = payloads.over_starts(STARTS)["chat"]["forebay"]
    assert ours["per_cpu_s"] == 40
    assert ours["starts"] == 3
    assert ours["to_haproxy"] == {"median": 0.2, "min": 0.1, "max": 0.4}
    assert ours["to_bare_relay"] == {"median": 0.8, "min": 0.2, "max": 0.8}


def test_who_does_not_answer_a_payload_has_the_reason_in_place_of_figures() -> None:
    taken: payloads.Start = {"chat": {"haproxy": figures(1), "portkey": {"left_out": "HTTP 404"}}}
    results = payloads.over_starts([taken])
    assert results["chat"]["portkey"] == {"left_out": "HTTP 404"}
    assert "HTTP 404" in text_of(report.payload_table(results, ["haproxy", "portkey"], "Payloads"))


def test_a_gateway_that_is_started_once_is_compared_in_that_start_only() -> None:
    slow = {"chat": {**STARTS[0]["chat"], "litellm": figures(1)}}
    ours = payloads.over_starts([slow, *STARTS])["chat"]["litellm"]
    assert ours["to_haproxy"] == {"median": 0.01, "min": 0.01, "max": 0.01}


def test_the_table_has_both_ratios_their_spread_and_the_latency() -> None:
    results = payloads.over_starts(STARTS)
    shown = text_of(report.payload_table(results, ["haproxy", "forebay"], "Payloads"))
    assert "x 0.200 (0.10-0.40)" in shown
    assert "x 0.800 (0.20-0.80)" in shown
    assert "1.00 / 2.00" in shown


def test_there_is_no_headline_without_every_payload() -> None:
    results = payloads.over_starts(STARTS)
    assert "no headline, 1 of 2" in report.headline(results, "forebay", ["chat", "stream"])
    assert "x 0.20 of HAProxy" in report.headline(results, "forebay", ["chat"])


def test_the_history_keeps_our_builds_and_shows_how_they_drift(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert history.read(path) == []
    for commit, starts in (("aaaaaaa", STARTS[:1]), ("bbbbbbb", STARTS[1:2])):
        results = payloads.over_starts(starts)
        history.append(path, history.lines_of(results, commit, quick=True))
    lines = history.read(path)
    assert [(one["commit"], one["build"], one["payload"]) for one in lines] == [
        ("aaaaaaa", "forebay", "chat"),
        ("bbbbbbb", "forebay", "chat"),
    ]
    shown = text_of(history.table(lines))
    assert "aaaaaaa" in shown
    assert "0.400" in shown
    assert "-50.0%" in shown


@pytest.mark.parametrize(
    "wrong", [{"delay_p99_us": 50_001}, {"core_busy": 0.91}, {"delivered": 0.9}, {"errors": 1}]
)
def test_streams_are_sustained_that_come_in_time_with_room_on_the_core(
    wrong: dict[str, float],
) -> None:
    good = {"delivered": 1.0, "delay_p99_us": 50_000.0, "core_busy": 0.9, "errors": 0}
    assert is_in_time(good)
    assert not is_in_time({**good, **wrong})
    assert not is_in_time({"failed": 1})


def test_a_variation_changes_what_it_says() -> None:
    by_name = {one.name: one for one in VARIATIONS}
    first = VARIATIONS[0].request()
    assert first == recording("openai-chat-user").request
    closing = by_name["a new connection each call"].request()
    assert closing == first.replace(b"Connection: keep-alive", b"Connection: close")
    assert b"user-0042" not in by_name["no user"].request()


def test_every_gateway_has_a_name_of_its_own() -> None:
    names = [gateway.name for gateway in GATEWAYS]
    assert len(set(names)) == len(names)


class Heard:
    """What a client makes of an answer."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


def test_what_the_node_sends_is_a_whole_answer_of_every_route(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    payload.write_answers(folder)
    index = [line.split() for line in (folder / "index").read_text().splitlines()]
    names = {route: name for method, route, name in index if method == "POST"}
    assert names.keys() == ANSWERS.keys()
    for route, answer in ANSWERS.items():
        kinds = ["whole", "first+token+last"] if answer.stream_type else ["whole"]
        for kind in kinds:
            heard = Heard()
            files = [folder / f"{names[route]}.{suffix}" for suffix in kind.split("+")]
            sent = b"".join(path.read_bytes() for path in files)
            httptools.HttpResponseParser(heard).feed_data(sent)
            assert heard.whole
        assert json.loads(answer.whole)
        assert answer.token.count(STAMP) == (1 if answer.stream_type else 0)


class BareRelay:
    """The bare relay before a node with one slot."""

    def __init__(self, node: FakeNode, relay: Relay, port: int) -> None:
        self.node = node
        self.relay = relay
        self.port = port

    async def client(self) -> RawClient:
        return await RawClient.connect("127.0.0.1", self.port)


@pytest.fixture
async def bare() -> AsyncIterator[BareRelay]:
    async with FakeNode() as node:
        relay = Relay(1, [int(node.url.rpartition(":")[2])])
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Client(relay), "127.0.0.1", 0)
        yield BareRelay(node, relay, server.sockets[0].getsockname()[1])
        server.close()
        for upstreams in relay.idle.values():
            for one in upstreams:
                one.transport.close()


@pytest.mark.parametrize("sent", recordings(), ids=lambda one: one.name)
async def test_the_bare_relay_passes_every_recording_on(bare: BareRelay, sent: Recording) -> None:
    async with await bare.client() as client:
        for _ in range(2):
            await client.send(sent.request)
            call = await bare.node.next_call()
            assert call.body == sent.body
            await call.answer({"choices": []})
            assert (await client.reply()).status == 200


async def test_the_bare_relay_lets_requests_wait_for_a_slot(bare: BareRelay) -> None:
    request = recording("openai-chat").request
    async with await bare.client() as first, await bare.client() as second:
        await first.send(request)
        call = await bare.node.next_call()
        await second.send(request.replace(b"keep-alive", b"close", 1))
        for _ in range(10_000):  # turns of the loop
            if bare.relay.waiting:
                break
            await asyncio.sleep(0)
        await call.answer({"choices": []})
        assert (await first.reply()).status == 200
        await (await bare.node.next_call()).answer({"choices": []})
        reply = await second.reply()
        assert reply.headers["connection"] == "close"
        assert await second.closed() == b""
        await first.send(request)
        await (await bare.node.next_call()).answer({"choices": []})
        assert (await first.reply()).status == 200
        assert bare.node.max_running == 1
