"""The two first things that a gateway must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_request_reaches_the_node_byte_for_byte_and_so_does_its_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    body = b'{ "model":"m",\t"messages" : [], "odd": [1,2,  {"x": null}] }'
    await client.post("/v1/chat/completions", body)
    call = await node.next_call()
    assert call.body == body
    await call.answer(b'{"choices":   []}')
    assert (await client.reply()).body == b'{"choices":   []}'


async def test_a_second_request_waits_for_the_only_slot_and_is_told_so(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask()
    running = await node.next_call()
    second = await rig.ask()
    await rig.wait_until("waiting", 1)
    rig.clock.advance(2.5)
    await running.answer({"choices": []})
    assert (await first.reply()).headers["x-queue-status"] == "direct"
    await (await node.next_call()).answer({"choices": []})
    headers = (await second.reply()).headers
    assert headers["x-queue-status"] == "queued"
    assert headers["x-queue-wait-ms"] == "2500"
    assert headers["x-queue-position"] == "1"
