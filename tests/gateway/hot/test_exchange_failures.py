"""Whatever raises while a request is answered, its slot and its connection come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.core import Arrived
from forebay.relay.call import InferenceCall
from forebay.relay.openai import OPENAI

from ..conftest import CHAT, OK, Rig

if TYPE_CHECKING:
    from forebay.relay.exchange import Exchange
    from forebay.relay.problem import Problem
    from forebay.testing import FakeNode
    from forebay.wire.heads import AnswerHead


class Broken(Exception):
    """A bug."""


class BrokenSink:
    """A sink that fails at the points it is told to."""

    def __init__(self, *points: str) -> None:
        self.points = points
        self.heard: list[str] = []

    def _at(self, point: str) -> None:
        self.heard.append(point)
        if point in self.points:
            raise Broken(point)

    def waits(self, exchange: Exchange) -> None:
        self._at("waits")

    def starts(self, exchange: Exchange) -> None:
        self._at("starts")

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        self._at("head")

    def chunk(self, data: bytes, framed: bytes = b"") -> None:
        self._at("chunk")

    def end(self) -> None:
        self._at("end")

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        self._at("failed")


def submit(rig: Rig, sink: BrokenSink, name: str = "it", *, stream: bool = False) -> Exchange:
    call = InferenceCall(
        Arrived(name, "m", stream=stream),
        OPENAI,
        route=CHAT,
        target=CHAT.encode(),
        body=b'{"model":"m"}',
        asked_model="m",
    )
    return rig.gateway.parts.relay.submit(call, sink)


async def nothing_is_left(rig: Rig) -> None:
    assert rig.gateway.parts.relay.exchanges == {}
    seen = await rig.gateway.parts.queue_observer.snapshot()
    assert (seen.running, seen.waiting) == (0, 0)


async def assert_the_slot_is_free(rig: Rig, node: FakeNode) -> None:
    client, call = await rig.run(node)
    await call.answer(OK)
    assert (await client.reply()).status == 200
    await nothing_is_left(rig)


@pytest.mark.parametrize("points", [("head",), ("chunk",), ("end",), ("head", "failed")])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_sink_that_fails_costs_its_own_request_only(
    rig: Rig, points: tuple[str, ...], stream: bool
) -> None:
    node = await rig.node()
    await rig.start(node)
    sink = BrokenSink(*points)
    submit(rig, sink, stream=stream)
    call = await node.next_call()
    if stream:
        await call.start_stream()
        await call.chunk(b"data: {}\n\n")
        if points == ("end",):
            await call.end()
    else:
        await call.answer(OK)
    await assert_the_slot_is_free(rig, node)
    assert set(points) <= set(sink.heard)


async def test_a_sink_that_fails_when_it_begins_to_wait_loses_its_place_only(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    submit(rig, BrokenSink("waits"))
    await call.answer(OK)
    assert (await client.reply()).status == 200
    await assert_the_slot_is_free(rig, node)


async def test_a_sink_that_fails_when_it_starts_gives_its_slot_to_the_next(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    submit(rig, BrokenSink("starts", "failed"))
    following = (await rig.line_up(1))[0]
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == (await following.reply()).status == 200
    await nothing_is_left(rig)


async def test_a_sink_that_fails_when_its_node_takes_too_long_gives_its_slot_back(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    submit(rig, BrokenSink("failed"))
    call = await node.next_call()
    rig.clock.advance(601.0)
    await call.gone()
    await nothing_is_left(rig)


async def test_a_counter_that_fails_keeps_no_slot(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)

    class Observer:
        def ended(self, exchange: Exchange, outcome: str) -> None:
            raise Broken(outcome)

    monkeypatch.setattr(rig.gateway.parts.relay, "_observer", Observer())
    for _ in range(3):
        client, call = await rig.run(node)
        await call.answer(OK)
        assert (await client.reply()).status == 200
    client, call = await rig.run(node)
    client.abort()
    await call.gone()
    await nothing_is_left(rig)
