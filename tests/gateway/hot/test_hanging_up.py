"""Nodes that hang up between answers: whoever is next must not pay for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.wire.client import STREAMS_CLOSED_MAX

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
    assert rig.gateway.parts.relay.retries_total <= STREAMS_CLOSED_MAX, "until it is known"
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
