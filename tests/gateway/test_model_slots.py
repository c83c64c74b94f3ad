"""Models that have slots for themselves on a node: `nodes.model_slots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .conftest import OK
from .test_found_slots import shown

if TYPE_CHECKING:
    from .conftest import Rig


async def test_models_with_slots_of_their_own_never_wait_behind_others(rig: Rig) -> None:
    node = await rig.node(kind="openai", models=["m", "bge-m3"])
    one = {"name": "n1", "url": node.url, "slots": 1, "model_slots": {"bge-*": 2}}
    await rig.start(node, nodes=[one])
    assert await shown(rig) == (3, "2 of them for bge-* alone")
    chat, chat_call = await rig.run(node)
    waits = (await rig.line_up(1))[0]
    embeds = [await rig.run(node, model="bge-m3") for _ in range(2)]
    assert len(node.calls) == 3
    page = (await rig.get("/metrics")).body.decode()
    assert 'forebay_node_slots{node="n1"} 3.0' in page
    assert 'forebay_node_in_flight{node="n1"} 3.0' in page
    for client, call in (*embeds, (chat, chat_call)):
        await call.answer(OK)
        reply = await client.reply()
        assert (reply.status, reply.headers["x-forebay-node"]) == (200, "n1")
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200


async def test_a_refusal_of_a_model_with_slots_of_its_own_rests_only_those(rig: Rig) -> None:
    node = await rig.node(kind="openai", models=["m", "bge-m3"])
    one = {"name": "n1", "url": node.url, "slots": 1, "model_slots": {"bge-*": 2}}
    await rig.start(node, nodes=[one])
    refused, call = await rig.run(node, model="bge-m3")
    await call.answer({}, 429)
    await rig.wait_until("waiting", 1)
    chat, other = await rig.run(node)
    await other.answer(OK)
    assert (await chat.reply()).status == 200
    rig.clock.advance(1.0)
    await (await node.next_call()).answer(OK)
    assert (await refused.reply()).status == 200
