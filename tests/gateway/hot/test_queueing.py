"""Waiting: who waits, how long, what they are told, and what a caller may ask about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..conftest import OK

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_freed_slot_wakes_exactly_one_waiter(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, running = await rig.run(node)
    await rig.line_up(3)
    await running.answer(OK)
    await node.next_call()
    await rig.wait_until("waiting", 2)
    assert len(node.calls) == 2
    assert node.max_running == 1


async def test_waiters_run_in_the_order_of_arrival_and_are_told_their_place(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, running = await rig.run(node)
    clients = await rig.line_up(3)
    positions = []
    for client in clients:
        await running.answer(OK)
        running = await node.next_call()
        await running.write(b"")
        rig.clock.advance(1.0)
        positions.append(client)
    await running.answer(OK)
    headers = [(await client.reply()).headers for client in clients]
    assert [seen["x-queue-position"] for seen in headers] == ["1", "2", "3"]
    assert [seen["x-queue-wait-ms"] for seen in headers] == ["0", "1000", "2000"]
    assert {seen["x-queue-status"] for seen in headers} == {"queued"}
    assert {seen["x-forebay-node"] for seen in headers} == {"n1"}


async def test_a_direct_answer_says_so_and_names_its_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer(OK)
    headers = (await client.reply()).headers
    assert headers["x-queue-status"] == "direct"
    assert headers["x-queue-wait-ms"] == "0"
    assert headers["x-forebay-node"] == "n1"
    assert headers["x-request-id"]
    assert "x-queue-position" not in headers
    assert "x-estimated-wait" not in headers


async def test_three_waiting_of_ten_seconds_each_on_one_slot_make_an_estimate_of_30(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    _, call = await rig.run(node)
    *_, last = await rig.line_up(4)
    for _ in range(4):
        await call.answer(OK)
        call = await node.next_call()
    await call.answer(OK)
    headers = (await last.reply()).headers
    assert headers["x-queue-position"] == "4"
    assert headers["x-estimated-wait"] == "30"


async def test_the_estimate_is_divided_by_the_slots_and_rounded_up(rig: Rig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    await rig.measure(node, 5.0)
    _, first = await rig.run(node)
    _, second = await rig.run(node)
    *_, last = await rig.line_up(2)
    for call in (first, second):
        await call.answer(OK)
    await (await node.next_call()).answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await last.reply()).headers["x-estimated-wait"] == "3"  # 1 x 5 / 2


@pytest.mark.parametrize(
    ("service_s", "waiting", "said"),
    [
        (10.0, 3, "30"),
        (10.004, 3, "30"),  # measured: what sleeps for 10 s takes a little longer
        (9.996, 3, "30"),
        (10.06, 3, "31"),  # 10.1 x 3
        (1.1, 10, "11"),  # and in binary a bit more
        (0.0499, 3, "1"),
    ],
)
async def test_an_estimate_is_of_a_rounded_mean_and_rounded_up_itself(
    rig: Rig, service_s: float, waiting: int, said: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, service_s)
    _, first = await rig.run(node)
    await rig.line_up(waiting)
    [client] = await rig.line_up(1)
    node.automatic = lambda call: call.answer(OK)
    await first.answer(OK)
    headers = (await client.reply()).headers
    assert headers["x-queue-position"] == str(waiting + 1)
    assert headers["x-estimated-wait"] == said


async def test_nothing_is_estimated_while_nothing_has_been_measured(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    [waiter] = await rig.line_up(1)
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert "x-estimated-wait" not in (await waiter.reply()).headers


async def test_who_waits_as_long_as_allowed_is_answered_at_that_moment_and_not_before(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    [waiter] = await rig.line_up(1)
    rig.clock.advance(59.99)
    assert (await rig.queue())["waiting"] == 1
    rig.clock.advance(0.01)
    reply = await waiter.reply()
    assert reply.status == 504
    assert reply.json["error"]["code"] == "queue_timeout"
    assert reply.json["error"]["waited_seconds"] == 60.0
    assert len(node.calls) == 1


async def test_a_limit_of_zero_answers_at_once(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 0.0})
    await rig.run(node)
    late = await rig.ask()
    assert (await late.reply()).json["error"]["code"] == "queue_timeout"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_limit_on_waiting_never_cuts_a_running_answer(rig: Rig, stream: bool) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 20.0, "keepalive_seconds": 0.0})
    _, first = await rig.run(node)
    [waiter] = await rig.line_up(1, stream=stream)
    rig.clock.advance(19.0)
    await first.answer(OK)
    call = await node.next_call()
    if stream:
        await call.start_stream()
        await call.chunk(b"data: 1\n\n")
        await waiter.head()
        rig.clock.advance(59.0)
        await call.chunk(b"data: 2\n\n")
        assert [await waiter.chunk(), await waiter.chunk()] == [b"data: 1\n\n", b"data: 2\n\n"]
        await call.end()
        assert await waiter.chunk() is None
    else:
        rig.clock.advance(599.0)
        await call.answer(OK)
        assert (await waiter.reply()).status == 200


async def test_the_clock_of_waiting_goes_on_when_a_request_returns_to_the_line(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, first = await rig.run(node)
    [waiter] = await rig.line_up(1)
    rig.clock.advance(50.0)
    await first.answer(OK)
    call = await node.next_call()
    rig.clock.advance(100.0)  # running does not count
    await call.answer({"error": "busy"}, 429, {"retry-after": "30"})
    await rig.wait_until("waiting", 1)
    rig.clock.advance(9.99)
    assert (await rig.queue())["waiting"] == 1
    rig.clock.advance(0.01)
    reply = await waiter.reply()
    assert reply.status == 504
    assert reply.json["error"]["waited_seconds"] == 60.0


async def test_a_direct_request_that_had_to_return_was_queued_in_the_end(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer({"error": "busy"}, 429, {"retry-after": "5"})
    await rig.wait_until("waiting", 1)
    rig.clock.advance(5.0)
    await (await node.next_call()).answer(OK)
    headers = (await client.reply()).headers
    assert headers["x-queue-status"] == "queued"
    assert headers["x-queue-wait-ms"] == "5000"


async def test_a_caller_may_shorten_its_wait(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    [waiter] = await rig.line_up(1, headers={"X-Forebay-Max-Wait": "2.5"})
    rig.clock.advance(2.49)
    assert (await rig.queue())["waiting"] == 1
    rig.clock.advance(0.01)
    reply = await waiter.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "queue_timeout")
    assert reply.json["error"]["waited_seconds"] == 2.5


async def test_a_caller_may_not_lengthen_its_wait(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 5.0})
    await rig.run(node)
    [waiter] = await rig.line_up(1, headers={"X-Forebay-Max-Wait": "500"})
    rig.clock.advance(5.0)
    assert (await waiter.reply()).json["error"]["waited_seconds"] == 5.0


async def test_a_caller_who_will_not_wait_runs_now_or_is_refused_now(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    now = {"X-Forebay-Max-Wait": "0"}
    first, call = await rig.run(node, headers=now)
    second = await rig.ask(headers=now)
    reply = await second.reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "deadline_unreachable")
    assert reply.headers["x-should-retry"] == "false"
    await call.answer(OK)
    assert (await first.reply()).headers["x-queue-status"] == "direct"


async def test_a_deadline_that_the_estimate_cannot_meet_is_refused_at_once(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    await rig.run(node)
    late = await rig.ask(headers={"X-Forebay-Max-Wait": "3"})
    reply = await late.reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "deadline_unreachable")
    assert reply.headers["x-should-retry"] == "false"
    assert 1 <= int(reply.headers["retry-after"]) <= 120
    assert reply.json["error"]["estimated_wait_seconds"] == 10.0
    assert (await rig.queue())["waiting"] == 0


async def test_a_deadline_that_the_estimate_can_meet_is_waited_for(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    _, call = await rig.run(node)
    [waiter] = await rig.line_up(1, headers={"X-Forebay-Max-Wait": "30"})
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await waiter.reply()).status == 200


@pytest.mark.parametrize("text", ["soon", "nan", "-1", "inf", "", "1e99", "0x10"])
async def test_a_wait_that_is_no_number_is_a_bad_request(rig: Rig, text: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(headers={"X-Forebay-Max-Wait": text})
    reply = await client.reply()
    assert reply.status == 400
    assert reply.json["error"]["code"] == "invalid_request"
    assert reply.json["error"]["param"] == "X-Forebay-Max-Wait"
    assert node.calls == []


async def test_waiting_for_one_model_does_not_hold_up_another(rig: Rig) -> None:
    a, b = await rig.node(models=("a",)), await rig.node(models=("b",))
    await rig.start(a, b)
    await rig.run(a, model="a")
    await rig.line_up(2, model="a", headers={"X-Forebay-Priority": "high"})
    client, call = await rig.run(b, model="b", headers={"X-Forebay-Priority": "low"})
    await call.answer(OK)
    assert (await client.reply()).headers["x-queue-status"] == "direct"


async def test_a_client_that_leaves_the_line_is_gone_and_never_runs(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    first, second = await rig.line_up(2)
    first.abort()
    await rig.wait_until("waiting", 1)
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await second.reply()).status == 200
    await rig.wait_until("processing", 0)
    assert len(node.calls) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_running_frees_the_node_at_once(
    rig: Rig, stream: bool
) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=stream)
    [waiter] = await rig.line_up(1)
    client.close()
    await call.gone()
    await (await node.next_call()).answer(OK)
    assert (await waiter.reply()).status == 200


async def test_requests_on_one_connection_are_answered_one_after_the_other(rig: Rig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    client = await rig.client()
    for number in range(2):
        await client.post("/v1/chat/completions", {"model": "m", "n": number})
    first = await node.next_call()
    assert (first.json["n"], (await rig.queue())["processing"]) == (0, 1)
    await first.answer({"choices": [0]})
    await (await node.next_call()).answer({"choices": [1]})
    assert [(await client.reply()).json["choices"] for _ in range(2)] == [[0], [1]]


async def test_ten_subagents_of_one_session_do_not_hold_back_its_main_thread(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, running = await rig.run(node, user="ann")
    for agent in range(10):
        headers = {"x-forebay-session": f"agent{agent}"}
        await rig.line_up(3, user="ann", headers=headers, prompt=f"subagent {agent}")
    headers = {"x-forebay-session": "main", "x-request-id": "main"}
    await rig.line_up(1, user="ann", headers=headers, prompt="the main thread")
    assert (await rig.get("/v1/queue/main")).json["position"] == 11
    for _ in range(11):
        await running.answer(OK)
        running = await node.next_call()
    assert b"the main thread" in running.body


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
