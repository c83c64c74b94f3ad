"""A node that does not say how many requests it runs: the gateway finds out, and says why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.nodes.backend import COMES_BACK

from .conftest import OK

if TYPE_CHECKING:
    import pytest

    from forebay.testing import FakeNode

    from .conftest import Rig

AT_FIRST = 4
"""Of a kind that is not known."""


async def shown(rig: Rig) -> tuple[int, str | None]:
    (node,) = (await rig.get("/admin/nodes")).json["data"]
    return node["slots"], node["slots_reason"]


async def serve(rig: Rig, node: FakeNode, count: int, knee: int = 1000) -> None:
    """Let so many requests be answered by an engine that slows down beyond so many at once."""
    clients = [await rig.ask(headers={"x-forebay-user": f"u{n % 3}"}) for n in range(count)]
    left = count
    while left:
        at_once = min(left, (await shown(rig))[0])
        calls = [await node.next_call() for _ in range(at_once)]
        rig.clock.advance(max(1.0, at_once / knee))
        for call in calls:
            await call.answer(OK)
        left -= at_once
    for client in clients:
        assert (await client.reply()).status == 200


async def test_requests_that_wait_get_more_slots_while_that_gains(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forebay.nodes")
    node = await rig.node(kind="openai")
    await rig.start(node)
    assert await shown(rig) == (AT_FIRST, None)
    await serve(rig, node, 60)
    slots, reason = await shown(rig)
    assert slots >= 2 * AT_FIRST
    assert reason
    lines = [one for one in caplog.records if "slots now" in one.getMessage()]
    assert lines[0].getMessage() == f"node has {2 * AT_FIRST} slots now"
    assert vars(lines[-1])["reason"] == reason
    page = (await rig.get("/metrics")).body.decode()
    assert f'forebay_node_slots_changes_total{{node="n1"}} {len(lines)}.0' in page


async def test_more_slots_that_gain_nothing_are_taken_back(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    for _ in range(2):
        await serve(rig, node, 90, knee=AT_FIRST)
    assert AT_FIRST - 1 <= (await shown(rig))[0] <= AT_FIRST + 1


async def test_one_refusal_takes_one_slot_and_the_request_keeps_its_place(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    running = [await rig.run(node) for _ in range(2)]
    waits, call = await rig.run(node)
    await call.answer({"error": "busy"}, 429)
    await rig.wait_until("waiting", 1)
    assert await shown(rig) == (AT_FIRST - 1, "the node refused a request as one too many")
    rig.clock.advance(1.0)
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200
    for client, runs in running:
        await runs.answer(OK)
        assert (await client.reply()).status == 200


async def test_fault_80_one_who_cancels_every_fifth_of_a_second_does_not_move_the_slots(
    rig: Rig,
) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    for _ in range(12):
        client, call = await rig.run(node, stream=True)
        client.close()
        await call.gone()
        refused = await rig.ask()
        await (await node.next_call()).answer({}, 429)
        await rig.wait_until("waiting", 1)
        rig.clock.advance(0.2)
        await (await node.next_call()).answer(OK)
        assert (await refused.reply()).status == 200
    assert await shown(rig) == (AT_FIRST, None)


async def test_a_request_that_times_out_takes_a_quarter(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node, queue={"first_byte_seconds": 5})
    client, _ = await rig.run(node, stream=True)
    rig.clock.advance(5.0)
    assert (await client.reply()).json["error"]["code"] == "first_byte_timeout"
    assert await shown(rig) == (AT_FIRST * 3 // 4, "a request was not answered in time")


async def test_a_number_in_the_settings_is_kept(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node, nodes=[{"name": "n1", "url": node.url, "slots": 2}])
    await serve(rig, node, 30)
    assert await shown(rig) == (2, None)
    assert node.max_running == 2
    assert "slots_changes_total{" not in (await rig.get("/metrics")).body.decode()


async def test_what_the_node_says_is_where_it_begins_and_the_most(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    assert await shown(rig) == (3, "the node says that it runs 3 at once")
    await serve(rig, node, 60)
    assert (await shown(rig))[0] == 3
    assert node.max_running == 3


async def test_requests_one_at_a_time_change_nothing(rig: Rig) -> None:
    """With slots free, one at a time says nothing of how many would run well."""
    node = await rig.node(kind="openai")
    await rig.start(node)
    for _ in range(30):
        await rig.measure(node, 1.0)
    assert await shown(rig) == (AT_FIRST, None)


async def test_what_was_found_survives_a_number_in_the_settings(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await serve(rig, node, 60)
    given, (found, _) = rig.given["nodes"][0], await shown(rig)
    assert found > AT_FIRST
    for slots, seen in ((5, 5), (6, 6), ("auto", found)):
        given["slots"] = slots
        assert (await rig.get("/admin/reload", method="POST")).status == 200
        assert (await shown(rig))[0] == seen


async def test_a_node_that_comes_back_begins_with_one_and_then_has_what_was_found(
    rig: Rig,
) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await serve(rig, node, 60)
    found = await shown(rig)
    node.health = "error"
    await rig.until_node("n1", "offline")
    node.health = "ok"
    await rig.until_node("n1", "online")
    assert await shown(rig) == (1, COMES_BACK)
    await rig.measure(node, 0.1)
    assert await shown(rig) == found
