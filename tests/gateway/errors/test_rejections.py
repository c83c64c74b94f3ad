"""Every refusal of the table in the design: its status, code, headers and body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig


def assert_says_when_to_come_back(reply: Reply, again: str = "true") -> None:
    seconds = int(reply.headers["retry-after"])
    assert 1 <= seconds <= 120
    assert (seconds - 1) * 1000 < int(reply.headers["retry-after-ms"]) <= seconds * 1000
    assert reply.headers["x-should-retry"] == again
    assert reply.json["error"]["retry_after"] == seconds


def assert_is_final(reply: Reply) -> None:
    assert "retry-after" not in reply.headers
    assert reply.headers["x-should-retry"] == "false"


async def fill(rig: Rig, **settings: Any) -> None:
    """Start a gateway with one busy slot."""
    node = await rig.node()
    await rig.start(node, **settings)
    await rig.run(node)


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(rig: Rig) -> None:
    await fill(rig, queue={"max_size": 1})
    await rig.line_up(1)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
    assert reply.json["error"]["type"] == "queue_full"
    assert reply.json["error"]["message"] == "queue is full: all nodes are busy"
    assert reply.json["error"]["param"] is None
    assert_says_when_to_come_back(reply)
    assert (await rig.queue())["waiting"] == 1


async def test_a_queue_that_is_full_in_bytes_is_full(rig: Rig) -> None:
    await fill(rig, queue={"max_bytes": 200})
    reply = await (await rig.ask(padding="x" * 200)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
    await rig.line_up(1)


async def test_the_operator_chooses_the_status_of_full_and_of_timeout(rig: Rig) -> None:
    await fill(rig, queue={"max_size": 1, "full_status": 503, "timeout_status": 408})
    [waiter] = await rig.line_up(1)
    full = await (await rig.ask()).reply()
    assert (full.status, full.json["error"]["code"]) == (503, "queue_full")
    assert_says_when_to_come_back(full)
    rig.clock.advance(60.0)
    late = await waiter.reply()
    assert (late.status, late.json["error"]["code"]) == (408, "queue_timeout")
    assert_says_when_to_come_back(late)


async def test_a_user_is_held_to_its_own_bound_and_others_are_not(rig: Rig) -> None:
    await fill(rig, queue={"max_per_user": 1})
    await rig.line_up(1, user="a")
    reply = await (await rig.ask(user="a")).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "user_queue_full")
    assert_says_when_to_come_back(reply)
    await rig.line_up(1, user="b")


async def test_waiting_too_long_is_a_timeout_that_says_when_to_come_back(rig: Rig) -> None:
    await fill(rig)
    [waiter] = await rig.line_up(1)
    rig.clock.advance(60.0)
    reply = await waiter.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "queue_timeout")
    assert_says_when_to_come_back(reply)
    assert reply.headers["x-request-id"]


@pytest.mark.parametrize("off", [{"enabled": False}, {"max_size": 0}])
async def test_at_capacity_with_the_queue_off_nobody_waits(rig: Rig, off: dict[str, Any]) -> None:
    await fill(rig, queue=off)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "queue_disabled")
    assert_says_when_to_come_back(reply)


async def test_a_stream_is_refused_when_streams_do_not_wait_but_other_requests_are_not(
    rig: Rig,
) -> None:
    await fill(rig, queue={"stream": "reject"})
    reply = await (await rig.ask(stream=True)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "stream_not_queued")
    assert_says_when_to_come_back(reply)
    await rig.line_up(1)


async def test_a_stream_that_finds_a_free_slot_runs_even_when_streams_do_not_wait(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"stream": "reject"})
    client, call = await rig.run(node, stream=True)
    await call.start_stream()
    await call.chunk(b"data: 1\n\n")
    assert (await client.head()).status == 200


async def test_an_unknown_model_is_not_found_at_once_even_when_all_is_busy(rig: Rig) -> None:
    await fill(rig)
    reply = await (await rig.ask(model="nowhere")).reply()
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
    assert reply.json["error"]["param"] == "model"
    assert_is_final(reply)


async def test_a_model_of_another_family_is_not_supported_on_this_route(rig: Rig) -> None:
    await fill(rig)
    reply = await (await rig.ask(path="/api/chat")).reply()
    assert (reply.status, reply.json["code"]) == (404, "route_not_supported")
    assert_is_final(reply)


async def test_a_model_whose_every_node_is_loading_says_so_when_the_wait_is_over(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    node.health = "loading"
    await rig.until_node("n1", "loading")
    (client,) = await rig.line_up(1)
    rig.clock.advance(60.0)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "model_loading")
    assert_says_when_to_come_back(reply)


async def test_a_node_that_is_loading_is_passed_over_for_one_that_is_not(rig: Rig) -> None:
    loading, ready = await rig.node(), await rig.node()
    await rig.start(loading, ready)
    loading.health = "loading"
    await rig.until_node("n1", "loading")
    _, call = await rig.run(ready)
    [waiter] = await rig.line_up(1)
    await call.answer(OK)
    await (await ready.next_call()).answer(OK)
    assert (await waiter.reply()).headers["x-forebay-node"] == "n2"
    assert loading.calls == []


async def test_with_all_nodes_down_newcomers_are_refused_and_waiters_wait_on(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 1000.0})
    await rig.run(node)
    [waiter] = await rig.line_up(1)
    began_s = rig.clock.monotonic_s()
    node.health = "error"
    await rig.until_node("n1", "offline")
    rig.clock.advance(30.0)
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")
    assert_says_when_to_come_back(reply)
    assert (await rig.queue())["waiting"] == 1
    rig.clock.advance(began_s + 1000.0 - rig.clock.monotonic_s())
    late = await waiter.reply()
    assert (late.status, late.json["error"]["code"]) == (503, "no_node")
    assert late.json["error"]["waited_seconds"] == 1000.0
    assert_says_when_to_come_back(late)


async def test_a_waiter_runs_when_its_dead_node_comes_back(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 1000.0})
    _, call = await rig.run(node)
    [waiter] = await rig.line_up(1)
    node.health = "error"
    await rig.until_node("n1", "offline")
    await call.answer(OK)
    node.health = "ok"
    await rig.until_node("n1", "online")
    await (await node.next_call()).answer(OK)
    assert (await waiter.reply()).status == 200


async def test_shutting_down_answers_every_waiter_and_refuses_newcomers(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    running, call = await rig.run(node)
    waiters = await rig.line_up(3)
    late = await rig.client()
    await rig.gateway.drain()
    for waiter in waiters:
        reply = await waiter.reply()
        assert (reply.status, reply.json["error"]["code"]) == (503, "shutting_down")
        assert_says_when_to_come_back(reply)
    await late.post(CHAT, {"model": "m"})
    assert (await late.reply()).json["error"]["code"] == "shutting_down"
    await call.answer(OK)
    assert (await running.reply()).status == 200


async def test_a_node_that_fails_every_attempt_is_a_502_with_its_cause(rig: Rig) -> None:
    nodes = [await rig.node() for _ in range(3)]
    await rig.start(*nodes)
    client = await rig.ask()
    for node in nodes:
        (await node.next_call()).reset()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "node_failed")
    assert reply.json["error"]["cause"].startswith("connection lost")
    assert reply.json["error"]["attempts"] == 3
    assert "retry-after" not in reply.headers


async def test_a_cancelled_request_is_a_499(rig: Rig) -> None:
    await fill(rig)
    [waiter] = await rig.line_up(1, headers={"X-Request-Id": "mine"})
    assert (await rig.get("/v1/queue/mine", method="DELETE")).status == 200
    reply = await waiter.reply()
    assert (reply.status, reply.reason) == (499, "Client Closed Request")
    assert reply.json["error"]["code"] == "cancelled"
    assert_is_final(reply)


BAD_BODIES = {
    "not JSON": (b"{", "body"),
    "no model": (b"{}", "model"),
    "a model that is no text": (b'{"model": 1}', "model"),
    "an empty model": (b'{"model": ""}', "model"),
    "a stream that is no flag": (b'{"model": "m", "stream": "yes"}', "stream"),
    "a limit that is no number": (b'{"model": "m", "max_tokens": "9"}', "max_tokens"),
    "a user that is no text": (b'{"model": "m", "user": 3}', "user"),
    "not UTF-8": (b'{"model": "m", "odd": "\xff"}', "body"),
    "too deep": (b'{"model": "m", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
    "a list": (b"[]", "body"),
    "a model given twice": (b'{"model": "m", "model": "n"}', "model"),
    "nothing": (b"", "body"),
}


@pytest.mark.parametrize("why", BAD_BODIES)
async def test_a_bad_body_is_refused_and_the_field_is_named(rig: Rig, why: str) -> None:
    node = await rig.node()
    await rig.start(node)
    body, param = BAD_BODIES[why]
    client = await rig.client()
    await client.post(CHAT, body)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert reply.json["error"]["param"] == param
    assert_is_final(reply)
    assert node.calls == []


@pytest.mark.parametrize(("field", "value"), [("previous_response_id", "r"), ("background", True)])
async def test_stored_responses_are_not_offered(rig: Rig, field: str, value: Any) -> None:
    await rig.start(await rig.node())
    reply = await (await rig.ask(path="/v1/responses", **{field: value})).reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "unsupported")
    assert reply.json["error"]["param"] == field


async def test_a_form_where_only_json_is_read_is_refused(rig: Rig) -> None:
    await rig.start(await rig.node())
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    reply = await (await rig.ask(headers=headers)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "unsupported")


async def test_a_body_beyond_its_bound_is_refused_before_it_is_sent(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"body_max_bytes": 1000})
    client = await rig.client()
    await client.send(
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n".encode()
    )
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    assert_is_final(reply)


async def test_a_head_beyond_its_bound_is_refused(rig: Rig) -> None:
    await rig.start(await rig.node())
    reply = await (await rig.ask(headers={"X-Long": "x" * 70_000})).reply()
    assert (reply.status, reply.json["error"]["code"]) == (431, "headers_too_large")
    assert_is_final(reply)


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(b"POST /v1", 10.0), (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n", 10.0)],
)
async def test_a_head_that_does_not_come_in_time_is_refused(
    rig: Rig, sent: bytes, seconds: float
) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    await client.send(sent)
    await rig.queue()
    rig.clock.advance(seconds)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
    assert_is_final(reply)


async def test_a_body_that_does_not_come_in_time_is_refused(rig: Rig) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    await client.send(
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{".encode()
    )
    await rig.queue()
    rig.clock.advance(60.0)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")


async def test_a_foreign_host_is_forbidden(rig: Rig) -> None:
    await rig.start(await rig.node())
    for reply in (
        await (await rig.ask(headers={"Host": "evil.test"})).reply(),
        await rig.get("/v1/queue", {"Host": "evil.test"}),
    ):
        assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden_host")
        assert_is_final(reply)
