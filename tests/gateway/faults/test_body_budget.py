"""What bodies take of the memory is bounded, shared, and given back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from .conftest import FIRST, SECOND, bearer, key

if TYPE_CHECKING:
    from forebay.relay.call import InferenceCall, Sink
    from forebay.relay.exchange import Exchange
    from forebay.testing import RawClient

    from .conftest import FaultRig

MIB = 1_048_576


def body(size: int) -> bytes:
    """Return a request of that size."""
    return b'{"model":"m","x":"%b"}' % (b"x" * (size - 20))


async def upload(
    rig: FaultRig, size: int, sent: int, headers: dict[str, str] | None = None
) -> RawClient:
    """Begin an upload of which only so many bytes are sent."""
    client = await rig.client()
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{lines}"
    await client.send(head.encode() + b"Content-Length: %d\r\n\r\n" % size)
    if sent:
        await client.send(body(size)[:sent])
    return client


async def test_arriving_bodies_wait_for_room_and_go_on_when_an_answer_begins(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=4)
    await rig.start(node, queue={"max_bytes": 8 * MIB})
    budget = rig.gateway.parts.bodies
    first = await upload(rig, 5 * MIB, 5 * MIB)
    call = await node.next_call()
    second = await upload(rig, 4 * MIB, 0)
    await rig.until(lambda: budget.waiting == 1, "it did not wait")
    assert budget.used_bytes == 5 * MIB
    await call.answer({"choices": []})
    assert (await first.reply()).status == 200
    await rig.until(lambda: budget.waiting == 0, "it still waits")
    await second.send(body(4 * MIB))
    await (await node.next_call()).answer({"choices": []})
    assert (await second.reply()).status == 200
    assert budget.used_bytes == 0


async def test_no_room_within_body_seconds_is_429_queue_full(rig: FaultRig) -> None:
    node = await rig.node(slots=4)
    await rig.start(node, queue={"max_bytes": 8 * MIB})
    budget = rig.gateway.parts.bodies
    first = await upload(rig, 5 * MIB, 5 * MIB)
    call = await node.next_call()
    second = await upload(rig, 4 * MIB, 0)
    await rig.until(lambda: budget.waiting == 1, "it did not wait")
    rig.clock.advance(60.0)
    reply = await second.reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
    assert int(reply.headers["retry-after"]) >= 1
    assert (await rig.queue())["rejected_total"] == 1
    assert await rig.metric('forebay_queue_rejected_total{reason="queue_full"}') == 1
    await call.answer({"choices": []})
    assert (await first.reply()).status == 200


async def test_forty_abandoned_uploads_keep_nobody_out(rig: FaultRig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node, queue={"max_bytes": 64 * MIB})
    budget = rig.gateway.parts.bodies
    stalled = [await upload(rig, 31 * MIB, 100_000) for _ in range(40)]
    await rig.until(lambda: budget.waiting == 39, "they did not wait")
    assert budget.used_bytes + budget.parked_bytes <= 64 * MIB
    normal = await upload(rig, 650_000, 650_000)
    await (await node.next_call()).answer({"choices": []})
    assert (await normal.reply()).status == 200
    for client in stalled[:20]:
        client.abort()
    for client in stalled[20:]:
        client.close()
    for _ in range(10):  # one that waits is not read from: its end is seen when its turn comes
        rig.clock.advance(6.0)
        await rig.queue()
    await rig.until(lambda: not budget.waiting and not budget.used_bytes, "bytes are left")
    assert budget.parked_bytes == 0


async def test_a_stalled_upload_makes_room_for_those_who_wait_and_only_for_them(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=2)
    await rig.start(node, queue={"max_bytes": 16 * MIB})
    budget = rig.gateway.parts.bodies
    stalled = await upload(rig, 12 * MIB, 1000)
    await rig.until(lambda: budget.used_bytes > 0, "it was not counted")
    rig.clock.advance(20.0)
    await rig.queue()
    assert budget.used_bytes == 12 * MIB  # it is slow, but in nobody's way
    waits = await upload(rig, 8 * MIB, 0)
    await rig.until(lambda: budget.waiting == 1, "it did not wait")
    rig.clock.advance(5.0)
    reply = await stalled.reply()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
    await rig.until(lambda: budget.waiting == 0, "it still waits")
    await waits.send(body(8 * MIB))
    await (await node.next_call()).answer({"choices": []})
    assert (await waits.reply()).status == 200


async def test_one_key_leaves_room_for_another(rig: FaultRig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node, queue={"max_bytes": 32 * MIB}, keys=[key("first"), key("second")])
    budget = rig.gateway.parts.bodies
    greedy = [await upload(rig, 6 * MIB, 0, bearer(FIRST)) for _ in range(10)]
    await rig.until(lambda: budget.waiting == 6, "too many got in, or too few")
    other = await upload(rig, 4 * MIB, 0, bearer(SECOND))
    await other.send(body(4 * MIB))
    await (await node.next_call()).answer({"choices": []})
    assert (await other.reply()).status == 200
    for client in greedy:
        client.close()
    for _ in range(12):
        rig.clock.advance(6.0)
        await rig.queue()


@pytest.mark.parametrize("path", ["/jobs", "/session"])
async def test_bodies_of_other_routes_are_counted_too(rig: FaultRig, path: str) -> None:
    await rig.start(await rig.node(), queue={"max_bytes": 4 * MIB})
    budget = rig.gateway.parts.bodies
    client = await rig.client()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"
    await client.send(head.encode() + b"x" * 1000)
    await rig.until(lambda: budget.used_bytes == 300_000, "it was not counted")
    await client.send(b"x" * 299_000)
    assert (await client.reply()).status == 400
    await rig.until(lambda: budget.used_bytes == 0, "bytes are left")


async def test_a_request_that_waits_in_line_is_counted_until_its_answer_begins(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    budget = rig.gateway.parts.bodies
    first = await rig.ask(padding="x" * 5000)
    call = await node.next_call()
    second = await rig.ask(padding="x" * 5000)
    await rig.wait_until("waiting", 1)
    both = budget.used_bytes
    assert both > 10_000
    await call.start_stream()
    await call.chunk(b"data: {}\n\n")
    assert (await first.head()).status == 200
    assert budget.used_bytes == both // 2
    second.close()
    await rig.until(lambda: budget.used_bytes == 0, "bytes of one that left are counted")
    first.close()


async def test_a_client_of_another_route_that_left_waits_for_no_room(rig: FaultRig) -> None:
    await rig.start(await rig.node(), queue={"max_bytes": MIB})
    budget = rig.gateway.parts.bodies
    await upload(rig, MIB, 0)
    await rig.until(lambda: budget.used_bytes == MIB, "it was not counted")
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n{"
    clients = [await rig.client() for _ in range(5)]
    for client in clients:
        await client.send(head)
    await rig.until(lambda: budget.waiting == 5, "they do not wait")
    for client in clients:
        client.abort()
    await rig.until(lambda: budget.waiting == 0, "they wait though they are gone")


@pytest.mark.interpreted("a method cannot be replaced by one that fails")
async def test_a_bug_in_one_large_body_does_not_stop_the_others(
    rig: FaultRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node(slots=4)
    await rig.start(node)
    relay = rig.gateway.parts.relay
    submit, broken = relay.submit, list[str]()

    def submit_or_fail(call: InferenceCall, sink: Sink) -> Exchange:
        if not broken:
            broken.append(call.arrival.id)
            raise RuntimeError("a bug")
        return submit(call, sink)

    monkeypatch.setattr(relay, "submit", submit_or_fail)
    rig.expected_errors.append("answering a request failed")
    clients = [await upload(rig, 900_000, 900_000) for _ in range(3)]
    for _ in range(2):
        await (await node.next_call()).answer({"choices": []})
    replies = 0
    for client in clients:
        with suppress(EOFError, ConnectionResetError):
            replies += (await client.reply()).status == 200
    assert (replies, len(broken)) == (2, 1)
