"""Rows 11-14, 19 and 20: more work than there are slots for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.relay.relay import EXPIRED_AT_ONCE

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig

SLOTS = 4


async def overload(rig: FaultRig, node: FakeNode, rounds: int) -> tuple[int, list[RawClient]]:
    """Send ten times what the node serves, a second a round; return the served, and all askers."""
    askers: list[RawClient] = []
    served = 0
    for _ in range(rounds):
        askers += [await rig.ask() for _ in range(10 * SLOTS)]
        await rig.wait_until("processing", SLOTS)
        served += await serve_those_running(rig, node)
    return served, askers


async def serve_those_running(rig: FaultRig, node: FakeNode) -> int:
    """Let a second pass and everything that runs be answered."""
    rig.clock.advance(1.0)
    running = [call for call in node.calls if not call.ended]
    for call in running:
        await call.answer({"choices": []})
    return len(running)


async def test_fault_11_ten_times_overload_costs_no_goodput_and_the_rest_is_told_when_to_return(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=SLOTS)
    await rig.start(node, queue={"max_size": 8})
    served, askers = await overload(rig, node, rounds=10)
    await rig.healthy()
    assert served == 10 * SLOTS  # all of the capacity, from the first second to the last
    assert (await rig.queue())["served_total"] >= 0.9 * 10 * SLOTS
    refused = [await asker.reply() for asker in askers[12:40]]  # 4 ran at once and 8 waited
    assert {reply.status for reply in refused} == {429}
    assert {reply.json["error"]["code"] for reply in refused} == {"queue_full"}
    delays = [int(reply.headers["retry-after-ms"]) for reply in refused]
    assert len(set(delays)) > 10  # jittered: they do not come back together
    assert all(1000 <= delay <= 120_000 for delay in delays)
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert node.max_running == SLOTS


async def test_fault_12_when_the_overload_ends_the_queue_drains_and_all_is_as_before(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=SLOTS)
    await rig.start(node, queue={"max_size": 8})
    await overload(rig, node, rounds=3)
    for left in (4, 0):
        await rig.wait_until("waiting", left)
        await rig.wait_until("processing", SLOTS)
        await serve_those_running(rig, node)
    await rig.wait_until("processing", 0)
    client = await rig.ask()
    await rig.wait_until("processing", 1)
    await serve_those_running(rig, node)
    reply = await client.reply()
    assert reply.status == 200
    assert reply.headers["x-queue-status"] == "direct"


async def test_fault_13_a_full_queue_refuses_at_once_and_counts_exactly(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 5})
    await rig.ask()
    await node.next_call()
    for count in range(5):
        await rig.ask()
        await rig.wait_until("waiting", count + 1)
    for _ in range(20):
        client = await rig.ask()
        reply = await client.reply()  # nobody has to leave and no time has to pass for it
        error = reply.json["error"]
        assert (reply.status, error["code"]) == (429, "queue_full")
        assert error["message"] == "queue is full: all nodes are busy"
        assert error["retry_after"] == int(reply.headers["retry-after"])
    queue = await rig.queue()
    assert (queue["waiting"], queue["processing"], queue["rejected_total"]) == (5, 1, 20)
    assert await rig.metric('forebay_queue_rejected_total{reason="queue_full"}') == 20
    assert len(node.calls) == 1


async def test_fault_13_the_bound_on_bytes_refuses_likewise(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_bytes": 10_000})
    await rig.ask()
    await node.next_call()
    await rig.ask(padding="x" * 9000)
    await rig.wait_until("waiting", 1)
    reply = await (await rig.ask(padding="x" * 9000)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
    await rig.ask()
    await rig.wait_until("waiting", 2)


async def serve_in_order(rig: FaultRig, node: FakeNode, count: int) -> list[Any]:
    """Serve so many on the only slot; return whom, by their mark."""
    order = []
    for _ in range(count):
        call = await node.next_call()
        order.append(call.json["mark"])
        await call.answer({})
    return order


async def test_fault_14_others_get_their_turns_beside_one_who_floods(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 1000})
    await rig.ask(user="flood", mark="flood")
    for _ in range(300):
        await rig.ask(user="flood", mark="flood")
    await rig.wait_until("waiting", 300)
    for number in range(10):
        await rig.ask(user=f"u{number}", mark=number)
    await rig.wait_until("waiting", 310)
    order = await serve_in_order(rig, node, 24)
    assert [mark for mark in order if mark != "flood"] == list(range(10))
    assert order.index(9) <= 21  # at most one of the flood's before each of theirs


async def test_fault_14_one_user_may_have_only_so_many_waiting(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_per_user": 5})
    for _ in range(6):
        await rig.ask(user="flood", mark="flood")
    await rig.wait_until("waiting", 5)
    for _ in range(20):
        reply = await (await rig.ask(user="flood")).reply()
        assert (reply.status, reply.json["error"]["code"]) == (429, "user_queue_full")
        assert reply.headers["retry-after"]
    await rig.ask(user="other", mark="other")
    await rig.wait_until("waiting", 6)
    assert await serve_in_order(rig, node, 3) == ["flood", "other", "flood"]


async def test_fault_19_when_all_deadlines_pass_at_once_everyone_is_told(rig: FaultRig) -> None:
    node = await rig.node()
    limits = {"max_size": 1000, "max_wait_seconds": 5.0, "keepalive_seconds": 3.0}
    await rig.start(node, queue=limits)
    first = await rig.ask()
    running = await node.next_call()
    waiters = [await rig.ask() for _ in range(200)]
    streams = [await rig.ask(stream=True) for _ in range(20)]
    await rig.wait_until("waiting", 220)
    rig.clock.advance(4.9)
    await rig.wait_until("waiting", 220)
    await rig.healthy()
    rig.clock.advance(0.1)  # nothing but time: nobody asks for anything, no node is probed
    assert len(rig.gateway.parts.relay.expired) == 220 - EXPIRED_AT_ONCE  # others first
    for waiter in waiters:
        reply = await waiter.reply()
        error = reply.json["error"]
        assert (reply.status, error["code"]) == (504, "queue_timeout")
        assert error["waited_seconds"] == 5.0
        assert reply.headers["retry-after"]
    for stream in streams:  # told by comments until then, so told in the stream
        body = (await stream.reply()).body
        assert b'"queue_timeout"' in body
        assert b"[DONE]" not in body
    assert (await rig.queue())["timeouts_total"] == 220
    await running.answer({})
    assert (await first.reply()).status == 200
    assert len(node.calls) == 1


async def test_fault_20_our_own_retries_add_at_most_a_tenth_to_the_load(rig: FaultRig) -> None:
    sick, well = await rig.node(), await rig.node()

    async def every_other(call: Call) -> None:
        if len(sick.calls) % 2:
            call.reset()
        else:
            await call.answer({})

    async def fine(call: Call) -> None:
        await call.answer({})

    sick.automatic, well.automatic = every_other, fine
    gateway = await rig.start(sick, well)
    client = await rig.client()
    statuses = []
    for _ in range(300):  # in no time: all in one window of the budget
        await client.post("/v1/chat/completions", {"model": "m"})
        reply = await client.reply()
        statuses.append(reply.status)
    calls = len(sick.calls) + len(well.calls)
    again = calls - 300  # mostly on connections that had been kept: those are no retries
    retries = gateway.parts.relay.retries.total
    assert 10 <= again <= max(10, 0.1 * 300)
    assert retries <= again
    assert statuses.count(502) > 10  # who came when the budget was spent is told so
    assert statuses.count(200) + statuses.count(502) == 300
    assert await rig.metric("forebay_retries_total") == retries
