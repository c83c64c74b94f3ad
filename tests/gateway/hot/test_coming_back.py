"""Requests that come back to the line: what their headers, their counters and their clients say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..conftest import OK
from .test_streams import EVENT

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient

    from ..conftest import Rig


async def enqueued(rig: Rig) -> float:
    metrics = (await rig.get("/metrics")).body.decode()
    (line,) = (x for x in metrics.splitlines() if x.startswith("forebay_queue_enqueued_total "))
    return float(line.rpartition(" ")[2])


async def sent_back(rig: Rig, node: FakeNode, **more: object) -> RawClient:
    """Return a request that ran at once, was told that the node is busy, and waits for 5 s."""
    client, call = await rig.run(node, **more)
    await call.answer({"error": "busy"}, status=429, headers={"retry-after": "5"})
    await rig.wait_until("waiting", 1)
    return client


async def test_it_was_queued_and_says_how_long_in_all(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    client = await sent_back(rig, node)
    assert await enqueued(rig) == 1
    rig.clock.advance(5.0)
    await (await node.next_call()).answer(OK)
    headers = (await client.reply()).headers
    assert headers["x-forebay-node"] == "n1"
    assert headers["x-queue-status"] == "queued"
    assert headers["x-queue-wait-ms"] == "5000"
    assert headers["x-queue-position"] == "1"
    assert headers["x-estimated-wait"] == "0"


async def test_one_that_had_waited_before_is_counted_once_and_keeps_its_first_place(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    _, first = await rig.run(node)
    _, client = await rig.line_up(2)
    rig.clock.advance(3.0)
    await first.answer(OK)
    await (await node.next_call()).answer(OK)
    call = await node.next_call()
    await call.answer({"error": "busy"}, status=503, headers={"retry-after": "5"})
    await rig.wait_until("waiting", 1)
    assert await enqueued(rig) == 2
    rig.clock.advance(5.0)
    await (await node.next_call()).answer(OK)
    headers = (await client.reply()).headers
    assert headers["x-queue-wait-ms"] == "8000", "both of its waits"
    assert (headers["x-queue-position"], headers["x-estimated-wait"]) == ("2", "10")


async def test_one_that_finds_another_node_at_once_did_not_wait(rig: Rig) -> None:
    node, other = await rig.node(), await rig.node()
    await rig.start(node, other)
    client, call = await rig.run(node)
    call.close()
    await (await other.next_call()).answer(OK)
    headers = (await client.reply()).headers
    assert (headers["x-forebay-node"], headers["x-queue-status"]) == ("n2", "direct")
    assert headers["x-queue-wait-ms"] == "0"
    assert await enqueued(rig) == 0


async def test_one_that_ends_in_line_still_says_where_it_ran(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 4.0})
    client = await sent_back(rig, node)
    rig.clock.advance(4.0)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "queue_timeout")
    assert reply.headers["x-forebay-node"] == "n1"
    assert reply.headers["x-queue-status"] == "queued"
    assert reply.headers["x-queue-wait-ms"] == "4000"


async def test_one_that_is_cancelled_in_line_says_how_long_it_waited(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await sent_back(rig, node, headers={"x-request-id": "mine"})
    rig.clock.advance(2.5)
    await rig.get("/v1/queue/mine", method="DELETE")
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (499, "cancelled")
    assert reply.headers["x-forebay-node"] == "n1"
    assert reply.headers["x-queue-wait-ms"] == "2500"


async def test_one_that_was_never_relayed_says_how_long_it_waited(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 4.0})
    await rig.run(node)
    [client] = await rig.line_up(1)
    rig.clock.advance(4.0)
    headers = (await client.reply()).headers
    assert (headers["x-queue-status"], headers["x-queue-wait-ms"]) == ("queued", "4000")
    assert "x-forebay-node" not in headers


async def test_a_stream_that_came_back_is_told_where_it_stands(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 2.0})
    client = await sent_back(rig, node, stream=True)
    rig.clock.advance(2.0)
    head = await client.head()
    assert (head.headers["x-queue-status"], head.headers["x-queue-position"]) == ("queued", "1")
    assert "x-forebay-node" not in head.headers, "where it will run is not known yet"
    assert await client.chunk() == b": queued position=1\n\n"
    rig.clock.advance(3.0)
    call = await node.next_call()
    assert await client.chunk() == b": queued position=1\n\n"
    assert await client.chunk() == b": started node=n1 waited_ms=5000\n\n"
    await call.start_stream()
    await call.chunk(EVENT)
    assert await client.chunk() == EVENT
