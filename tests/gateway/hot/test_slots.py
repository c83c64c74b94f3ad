"""Slots and the line before them: who is admitted, who waits, and that every slot comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import Call

    from ..conftest import Rig


async def answer_at_once(call: Call) -> None:
    await call.answer({"choices": [], "n": call.json.get("n")})


async def test_five_of_a_and_two_of_b_run_as_a_b_a_b_a_a_a(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node, user="nobody")
    for user in "AAAAABB":
        await rig.line_up(1, user=user)
    order = ""
    for _ in range(7):
        await call.answer(OK)
        call = await node.next_call()
        order += call.json["user"]
    assert order == "ABABAAA"


async def test_fifty_at_once_are_admitted_exactly_as_far_as_there_is_room(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 10})
    _, call = await rig.run(node)
    clients = [await rig.client() for _ in range(50)]
    await asyncio.gather(*(client.post(CHAT, {"model": "m"}) for client in clients))
    await rig.wait_until("rejected_total", 40)
    seen = await rig.queue()
    assert (seen["waiting"], seen["processing"]) == (10, 1)
    node.automatic = answer_at_once
    await call.answer(OK)
    statuses = [(await client.reply()).status for client in clients]
    assert (statuses.count(200), statuses.count(429)) == (10, 40)
    assert node.max_running == 1


async def test_so_many_are_accepted_and_the_next_one_is_not_and_the_first_are_still_served(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 1})
    first, call = await rig.run(node)
    [second] = await rig.line_up(1)
    third = await (await rig.ask()).reply()
    assert (third.status, "retry-after" in third.headers) == (429, True)
    rig.clock.advance(0.5)
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await first.reply()).status == 200
    served = await second.reply()
    assert served.status == 200
    assert int(served.headers["x-queue-wait-ms"]) > 0


async def test_two_nodes_drain_the_line_in_parallel(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    _, one = await rig.run(first)
    _, two = await rig.run(second)
    await rig.line_up(2)
    await one.answer(OK)
    await two.answer(OK)
    await first.next_call()
    await second.next_call()
    assert (await rig.queue())["processing"] == 2


async def test_a_request_goes_to_the_idle_node_of_two(rig: Rig) -> None:
    busy, idle = await rig.node(), await rig.node()
    await rig.start(busy, idle)
    await rig.run(busy)
    client, call = await rig.run(idle)
    await call.answer(OK)
    assert (await client.reply()).headers["x-forebay-node"] == "n2"


async def test_ten_at_once_are_all_served_on_one_slot_and_never_two_together(rig: Rig) -> None:
    node = await rig.node()
    node.automatic = answer_at_once
    await rig.start(node)
    clients = [await rig.client() for _ in range(10)]
    await asyncio.gather(*(client.post(CHAT, {"model": "m"}) for client in clients))
    assert [(await client.reply()).status for client in clients] == [200] * 10
    assert node.max_running == 1


async def test_a_queued_request_gets_the_node_s_own_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    [client] = await rig.line_up(1, n=7)
    await call.answer(OK)
    await answer_at_once(await node.next_call())
    assert (await client.reply()).json == {"choices": [], "n": 7}


async def test_the_depth_is_exact_after_comings_and_goings(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    clients = await rig.line_up(4)
    clients[1].abort()
    await rig.wait_until("waiting", 3)
    await call.answer(OK)
    await node.next_call()
    await rig.wait_until("waiting", 2)
    rig.clock.advance(60.0)
    assert (await clients[2].reply()).status == (await clients[3].reply()).status == 504
    seen = await rig.queue()
    assert (seen["waiting"], seen["processing"], seen["timeouts_total"]) == (0, 1, 2)


async def test_a_waiter_whose_node_is_removed_waits_on_and_is_served_by_a_new_one(
    rig: Rig,
) -> None:
    old, new = await rig.node(), await rig.node()
    await rig.start(old)
    await rig.run(old)
    [waiter] = await rig.line_up(1)
    assert (await rig.get("/admin/nodes/n1", method="DELETE")).status == 204
    assert (await rig.queue())["waiting"] == 1
    body = {"name": "n2", "url": new.url}
    assert (await rig.get("/admin/nodes", method="POST", body=body)).status == 201
    await (await new.next_call()).answer(OK)
    assert (await waiter.reply()).headers["x-forebay-node"] == "n2"


async def test_a_waiter_whose_node_is_removed_for_good_ends_with_no_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    [waiter] = await rig.line_up(1)
    await rig.get("/admin/nodes/n1", method="DELETE")
    rig.clock.advance(60.0)
    reply = await waiter.reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")


@pytest.mark.parametrize("how", ["answer", "leave", "die", "refuse"])
async def test_a_slot_comes_back_however_a_request_ends(rig: Rig, how: str) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client, call = await rig.run(node)
    if how == "answer":
        await call.answer(OK)
    elif how == "leave":
        client.abort()
    elif how == "die":
        call.reset()
    else:
        await call.answer({"error": "no"}, 400)
    await rig.wait_until("processing", 0)
    listed = (await rig.get("/admin/nodes")).json["data"]
    assert [node["in_flight"] for node in listed] == [0]


async def test_losers_of_a_race_for_a_slot_wait_on_instead_of_being_refused(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    clients = await rig.line_up(5)
    node.automatic = answer_at_once
    await call.answer(OK)
    assert [(await client.reply()).status for client in clients] == [200] * 5
