"""Row 22: whole answers of 5xx, which may be the request's own fault, and whom they may cost what.

Connections that break, garbage and time limits are in `test_failing_nodes.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ..jobs.job_steps import chat, submit, until
from ..routes.test_batches import create, line
from ..routes.test_batches import until as until_batch
from ..sessions.session_steps import follow, new_session, prompt
from .conftest import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.testing import FakeNode, Reply
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig

ERROR = {"error": {"code": 500, "message": "Failed to parse tools", "type": "server_error"}}
WORDS = "the node answered 500: Failed to parse tools"


def answering(*statuses: int) -> Callable[[Call], Coroutine[Any, Any, object]]:
    """Make a node answer these in turn, the last one for ever."""
    left = list(statuses)

    async def answer(call: Call) -> None:
        status = left.pop(0) if len(left) > 1 else left[0]
        await call.answer({} if status == 200 else ERROR, status)

    return answer


async def broken(call: Call) -> None:
    """Answer whoever says so with a 500, and others well."""
    await (call.answer(ERROR, 500) if call.json.get("bad") else call.answer({}))


async def started(rig: FaultRig, count: int = 1, **settings: Any) -> list[FakeNode]:
    nodes = [await rig.node() for _ in range(count)]
    await rig.start(*nodes, **settings)
    return nodes


async def state(rig: FaultRig, name: str = "n1") -> tuple[str, list[str]]:
    (node,) = [n for n in (await rig.get("/admin/nodes")).json["data"] if n["name"] == name]
    return node["state"], node["failing"]


async def failures(rig: FaultRig, kind: str, node: str = "n1") -> float:
    return await rig.metric(f'forebay_node_failures_total{{kind="{kind}",node="{node}"}}')


@pytest.mark.parametrize(("count", "asked"), [(1, [2]), (2, [1, 1]), (4, [1, 1, 0, 0])])
@pytest.mark.parametrize("stream", [False, True])
async def test_fault_22_a_500_is_tried_once_more_elsewhere_if_possible_and_passed_through(
    rig: FaultRig, count: int, asked: list[int], stream: bool
) -> None:
    nodes = await started(rig, count)
    for node in nodes:
        node.automatic = answering(500)
    reply = await (await rig.ask(stream=stream)).reply()
    assert (reply.status, reply.json) == (500, ERROR)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-forebay-node"] == f"n{min(count, 2)}"
    assert [len(node.calls) for node in nodes] == asked
    assert await rig.metric("forebay_retries_total") == 1
    assert sum([await failures(rig, "status", f"n{i + 1}") for i in range(count)]) == 2
    route = 'route="/v1/chat/completions"'
    line = f'forebay_requests_total{{outcome="passed_through",{route}}}'
    assert await rig.metric(line) == 1


@pytest.mark.parametrize("count", [1, 2])
async def test_fault_22_the_second_try_may_succeed_and_the_first_goes_unseen(
    rig: FaultRig, count: int
) -> None:
    nodes = await started(rig, count)
    nodes[0].automatic = answering(500, 200)
    nodes[-1].automatic = nodes[-1].automatic or answering(200)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.headers["x-forebay-node"]) == (200, f"n{count}")


async def test_fault_22_another_5xx_is_not_tried_a_third_time(rig: FaultRig) -> None:
    (node,) = await started(rig)
    node.automatic = answering(500, 502, 200)
    reply = await (await rig.ask()).reply()
    assert (reply.status, len(node.calls)) == (502, 2)


@pytest.mark.parametrize("status", [501, 507, 504, 599])
async def test_fault_22_every_5xx_has_its_own_status_and_501_is_no_failure(
    rig: FaultRig, status: int
) -> None:
    (node,) = await started(rig)
    node.automatic = answering(status)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json) == (status, ERROR)
    assert len(node.calls) == (1 if status == 501 else 2)


@pytest.mark.parametrize(
    "settings",
    [{"retry": {"attempts": 1}}, {"queue": {"max_wait_seconds": 0.0}}],
    ids=["no attempt left", "no time left"],
)
async def test_fault_22_where_it_cannot_be_tried_again_the_answer_is_passed_through(
    rig: FaultRig, settings: dict[str, Any]
) -> None:
    (node,) = await started(rig, **settings)
    node.automatic = answering(500)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json) == (500, ERROR)
    assert reply.headers["x-forebay-node"] == "n1"
    assert len(node.calls) == 1


async def test_fault_22_who_waits_no_longer_than_it_may_gets_the_answer_that_there_was(
    rig: FaultRig,
) -> None:
    first, second = await started(rig, 2)
    client = await rig.ask(mark="bad")
    call = await first.next_call()
    await rig.ask(mark="holds n2")
    await second.next_call()
    await call.answer(ERROR, 500)
    await rig.wait_until("waiting", 1)  # the other node is busy
    rig.clock.advance(60.0)
    reply = await client.reply()
    assert (reply.status, reply.json) == (500, ERROR)
    assert reply.headers["x-forebay-node"] == "n1"


async def test_fault_22_a_node_that_breaks_off_at_the_second_try_does_not_hide_the_first_answer(
    rig: FaultRig,
) -> None:
    first, second = await started(rig, 2, retry={"attempts": 2})
    client = await rig.ask()
    await (await first.next_call()).answer(ERROR, 500)
    (await second.next_call()).reset()
    assert (await client.reply()).json == ERROR
    assert await failures(rig, "lost", "n2") == 1


async def test_fault_22_a_500_that_breaks_off_is_a_broken_connection(rig: FaultRig) -> None:
    (node,) = await started(rig, retry={"attempts": 1})
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\n{")
    call.close()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "node_failed")
    assert (await failures(rig, "lost"), await failures(rig, "status")) == (1, 0)


async def test_fault_22_a_very_long_500_flows_and_is_not_tried_again(rig: FaultRig) -> None:
    (node,) = await started(rig)
    client = await rig.ask()
    await (await node.next_call()).answer(b"x" * 600_000, 500, {"content-type": "text/plain"})
    reply = await client.reply()
    assert (reply.status, len(reply.body), len(node.calls)) == (500, 600_000, 1)
    assert await failures(rig, "status") == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_fault_22_in_a_stream_that_has_begun_it_is_told_with_its_status_and_words(
    rig: FaultRig, path: str
) -> None:
    (node,) = await started(rig)
    running, hold = await rig.run(node)
    client = await rig.ask(path=path, stream=True)
    await rig.wait_until("waiting", 1)
    rig.clock.advance(15.0)
    await rig.wait_until("waiting", 1)
    assert (await client.head()).status == 200
    await hold.answer({})
    await running.reply()
    for _ in range(2):
        call = await node.next_call()
        await call.answer(b"words " * 1000, 500, {"content-type": "text/plain"})
    told = (await rest(client)).decode()
    error = json.loads(told.rpartition("data: ")[2])["error"]
    assert error["code"] == "node_failed"
    words = "the node answered 500: " + ("words " * 1000)[:2048]
    assert words in (error.get("cause") or error["message"])
    assert "[DONE]" not in told


async def rest(client: Any) -> bytes:
    """Return what is left of a stream, to its end."""
    pieces = []
    while (piece := await client.chunk()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


async def test_fault_22_a_job_fails_with_the_words_of_the_node(rig: FaultRig) -> None:
    (node,) = await started(rig)
    node.automatic = answering(500)
    failed = await until(rig, await submit(rig, chat()), "failed")
    assert (failed["error"], failed["error_code"]) == (WORDS, "node_failed")
    assert failed["result"] == ERROR
    assert len(node.calls) == 2


async def test_fault_22_a_job_is_told_words_that_are_no_json(rig: FaultRig) -> None:
    (node,) = await started(rig, retry={"attempts": 1})
    job_id = await submit(rig, chat())
    await (await node.next_call()).answer(b"out of memory", 500, {"content-type": "text/plain"})
    failed = await until(rig, job_id, "failed")
    assert failed["error"] == "the node answered 500: out of memory"


async def test_fault_22_a_line_of_a_batch_fails_with_the_words_of_the_node(rig: FaultRig) -> None:
    (node,) = await started(rig)
    node.automatic = answering(500)
    made = await create(rig, line("one"))
    ended = await until_batch(rig, made["id"], "completed")
    assert ended["request_counts"]["failed"] == 1
    content = (await rig.get(f"/v1/files/{ended['error_file_id']}/content")).body
    told = json.loads(content)
    assert (told["error"]["code"], told["error"]["message"]) == ("node_failed", WORDS)
    assert (told["response"]["status_code"], told["response"]["body"]) == (500, ERROR)


async def test_fault_22_a_prompt_fails_with_the_words_of_the_node(rig: FaultRig) -> None:
    (node,) = await started(rig)
    node.automatic = answering(500)
    session = await new_session(rig)
    events = await follow(rig, session)
    said = (await events.end_of(await prompt(rig, session)))["error"]
    assert (said["code"], said["message"]) == ("node_failed", WORDS)


@pytest.mark.parametrize("count", [1, 2])
async def test_fault_22_one_client_with_nothing_but_bad_requests_costs_no_other_anything(
    rig: FaultRig, count: int
) -> None:
    nodes = await started(rig, count)
    for node in nodes:
        node.automatic = broken
    for _ in range(30):
        bad = await (await rig.ask(bad=True, user="x")).reply()
        assert (bad.status, bad.json) == (500, ERROR)
        for user in "yz":
            assert (await (await rig.ask(user=user)).reply()).status == 200
        rig.clock.advance(1.0)
        for number in range(count):
            assert await state(rig, f"n{number + 1}") == ("online", [])
    good = [await (await rig.ask(user="y", stream=False)).reply() for _ in range(10)]
    assert {reply.status for reply in good} == {200}


async def test_fault_22_many_bad_requests_leave_retries_for_broken_connections(
    rig: FaultRig,
) -> None:
    first, second = await started(rig, 2)
    first.automatic = second.automatic = broken
    for _ in range(30):  # a tenth of the requests, and ten always, may be retries
        assert (await (await rig.ask(bad=True)).reply()).status == 500
    assert await rig.metric("forebay_retries_total") == 5
    left = 1

    async def tires_of_it(call: Call) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await call.answer({})
        else:
            call.reset()  # of a connection that was idle: no failure, if it may be sent again

    first.automatic = second.automatic = tires_of_it
    assert (await (await rig.ask()).reply()).status == 200
    assert left < 0


async def test_fault_22_a_model_that_fails_for_two_users_rests_for_seconds_and_they_wait(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=4, models=["m", "other"])
    await rig.start(node)

    async def fails(call: Call) -> None:
        await (call.answer(ERROR, 500) if call.json["model"] == "m" else call.answer({}))

    node.automatic = fails
    for user in "xy":  # two answers each
        assert (await (await rig.ask(user=user)).reply()).status == 500
    third = await rig.ask(user="x")
    await rig.wait_until("waiting", 1)  # to be tried once more, when the model has rested
    assert await state(rig) == ("online", ["m"])
    newcomer = await rig.ask(user="z")
    await rig.wait_until("waiting", 2)
    assert (await (await rig.ask("other")).reply()).status == 200
    node.automatic = answering(200)
    rig.clock.advance(5.0)
    for client in (third, newcomer):
        assert (await client.reply()).status == 200
    assert await state(rig) == ("online", [])


async def test_fault_22_after_the_rest_one_request_at_a_time_is_the_probe(rig: FaultRig) -> None:
    node = await rig.node(slots=4)
    await rig.start(node, retry={"attempts": 1})
    node.automatic = answering(500)
    for user in "xyxyx":
        assert (await (await rig.ask(user=user)).reply()).status == 500
    assert await state(rig) == ("online", ["m"])
    node.automatic = None
    clients = [await rig.ask(user="z", mark=number) for number in range(3)]
    await rig.wait_until("waiting", 3)
    rig.clock.advance(1.0)
    call = await node.next_call()
    await rig.wait_until("waiting", 2)
    await call.answer(ERROR, 500)
    assert (await clients[0].reply()).status == 500
    assert await state(rig) == ("online", ["m"])
    rig.clock.advance(2.0)
    call = await node.next_call()
    await rig.wait_until("waiting", 1)
    await call.answer({})
    assert (await clients[1].reply()).status == 200
    await (await node.next_call()).answer({})
    assert (await clients[2].reply()).status == 200
    assert await state(rig) == ("online", [])


async def test_fault_22_a_refusal_that_a_guard_makes_itself_is_a_lost_connection(
    rig: FaultRig,
) -> None:
    first, second = await started(rig, 2)
    second.automatic = answering(200)
    client = await rig.ask()
    call = await first.next_call()
    await call.answer(ERROR, 502, {"x-forebay-guard": "backend_failed"})
    reply = await client.reply()
    assert (reply.status, reply.headers["x-forebay-node"]) == (200, "n2")
    assert await failures(rig, "lost") == 1


async def test_fault_22_a_buffered_stream_of_the_second_try_reaches_the_client(
    rig: FaultRig,
) -> None:
    first, second = await started(rig, 2, retry={"stream": "buffer"})
    client = await rig.ask(stream=True)
    await (await first.next_call()).answer(ERROR, 500)
    await (await second.next_call()).answer(EVENT, headers={"content-type": "text/event-stream"})
    reply: Reply = await client.reply()
    assert (reply.status, reply.body) == (200, EVENT)
