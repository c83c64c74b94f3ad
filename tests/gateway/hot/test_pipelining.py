"""Requests that come before the one before them is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_pipelined_requests_are_answered_in_their_order(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    for mark in ("one", "two", "three"):
        await client.post("/v1/chat/completions", {"model": "m", "mark": mark})
    for mark in ("one", "two", "three"):
        call = await node.next_call()
        assert call.json["mark"] == mark
        await call.answer({"mark": mark})
        assert (await client.reply()).json == {"mark": mark}


async def test_a_client_that_asks_for_pages_and_reads_none_is_held_back(rig: Rig) -> None:
    await rig.start(await rig.node())
    client = await rig.client(rcvbuf=4096)
    client.stop_reading()
    for _ in range(400):
        await client.get("/openapi.json")
    await rig.wait_until("waiting", 0)
    (connection,) = (c for c in rig.gateway._server.connections if c.early or c._slow)
    assert connection.transport.get_write_buffer_size() < 1_000_000
    client.abort()


async def test_an_endless_line_of_early_bytes_ends_the_connection(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    await client.send(b"x" * 200_000)
    await call.gone()
    await rig.wait_until("processing", 0)
