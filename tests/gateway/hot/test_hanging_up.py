"""Nodes that hang up between answers: whoever is next must not pay for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.wire.client import STREAMS_CLOSED_MAX

from ..conftest import OK
from .test_streams import EVENT, rest_of

if TYPE_CHECKING:
    from forebay.testing import Call

    from ..conftest import Rig


async def test_a_node_that_hangs_up_after_each_stream_is_soon_known_for_it(rig: Rig) -> None:
    """llama.cpp does so, though it says keep-alive: whoever is next must not pay for it."""
    node = await rig.node()

    async def stream_and_hang_up(call: Call) -> None:
        await call.start_stream()
        await call.chunk(EVENT)
        await call.end()
        call.close()

    await rig.start(node)
    _, first = await rig.run(node, stream=True)
    waiting = await rig.line_up(30, stream=True)
    node.automatic = stream_and_hang_up
    await stream_and_hang_up(first)
    for client in waiting:
        assert (await client.head()).status == 200
        assert await rest_of(client) == EVENT
    assert rig.gateway.parts.relay.retries.total <= STREAMS_CLOSED_MAX, "until it is known"
    backend = rig.gateway.parts.nodes.get("n1")
    assert backend is not None
    assert backend.failures == {}
    assert len(node.calls) == 31, "nothing was run twice"


async def test_a_node_that_keeps_its_connections_has_them_used_again_after_streams(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    before = node.accepted
    for _ in range(5):
        client, call = await rig.run(node, stream=True)
        await call.start_stream()
        await call.chunk(EVENT)
        await call.end()
        assert (await client.reply()).status == 200
    assert node.accepted == before + 1


async def test_a_stream_with_a_length_that_breaks_does_not_confuse_the_next_answer(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    call = await node.next_call()
    kind = b"content-type: text/event-stream\r\ncontent-length: 5000\r\n\r\n"
    await call.write(b"HTTP/1.1 200 OK\r\n" + kind + b"data: 1\n\n")
    head = await client.head()
    assert head.headers["transfer-encoding"] == "chunked"
    call.reset()
    pieces = []
    while (piece := await client.chunk()) is not None:
        pieces.append(piece)
    assert b"node_failed" in pieces[-1]
    await client.post("/v1/chat/completions", {"model": "m"})
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).json == OK


async def test_an_answer_without_content_is_no_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (await client.reply()).status == 502
