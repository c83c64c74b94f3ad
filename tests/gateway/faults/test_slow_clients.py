"""Rows 7-10: clients that dawdle, idle or vanish hold nothing that others need."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import CHAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.testing import FakeNode, RawClient
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig

PIECE = b"data: %b\n\n" % (b"x" * 16_000)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n"
ENOUGH = 64 << 20  # more than all buffers on the way hold


async def pour(call: Call, sent: list[int]) -> None:
    """Stream until the other end has gone."""
    with suppress(ConnectionResetError):
        await call.start_stream()
        while sum(sent) < ENOUGH:
            await call.chunk(PIECE)
            sent.append(len(PIECE))


async def stalled(rig: FaultRig, node: FakeNode) -> tuple[RawClient, Call, list[int]]:
    """Return a stream whose client has stopped reading, once every buffer on the way is full."""
    client = await rig.client(rcvbuf=4096)
    client.stop_reading()
    await client.post(CHAT, {"model": "m", "stream": True})
    call = await node.next_call()
    sent: list[int] = []
    pouring = asyncio.ensure_future(pour(call, sent))
    (exchange,) = rig.gateway.parts.relay.exchanges.values()
    seen = -1
    while seen != len(sent) or not exchange.paused:
        seen = len(sent)
        await call.blocked()
        for _ in range(20):
            await rig.queue()
    rig.stack.push_async_callback(asyncio.wait, [pouring])
    return client, call, sent


async def test_fault_07_a_client_that_stops_reading_holds_the_node_back_and_is_then_cut_off(
    rig: FaultRig,
) -> None:
    node = await rig.node(sndbuf=4096)
    await rig.start(node)
    _, call, sent = await stalled(rig, node)
    await rig.healthy()
    assert sum(sent) < ENOUGH // 4  # what the kernel takes, and one buffer of ours
    rig.clock.advance(29.9)
    await rig.healthy()
    assert not call.peer_gone
    rig.clock.advance(0.2)  # write_seconds
    await call.gone()
    await rig.wait_until("processing", 0)
    heir = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await heir.reply()).status == 200


async def test_fault_07_a_slow_reader_is_not_taken_for_a_silent_node(rig: FaultRig) -> None:
    node = await rig.node(sndbuf=4096)
    await rig.start(node, server={"write_seconds": 300.0}, queue={"chunk_gap_seconds": 60.0})
    client, call, _ = await stalled(rig, node)
    rig.clock.advance(100.0)
    await rig.healthy()
    assert not call.peer_gone
    client.resume_reading()
    assert (await client.head()).status == 200
    while await client.chunk() is not None:
        if not call.paused:
            break
    assert await rig.metric('forebay_node_failures_total{kind="chunk_timeout",node="n1"}') == 0


async def test_fault_07_a_connection_paused_for_a_slow_reader_serves_the_next_request(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    slow = await rig.client(rcvbuf=4096)
    slow.stop_reading()
    await slow.post(CHAT, {"model": "m"})
    await (await node.next_call()).answer(b'{"x": "%b"}' % (b"x" * 8_000_000))
    await rig.wait_until("processing", 1)  # the client takes nothing
    slow.resume_reading()
    assert len((await slow.reply()).body) > 8_000_000
    again = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await again.reply()).status == 200


async def test_fault_07_an_answer_that_ends_in_the_bytes_that_pause_it_leaves_no_deaf_connection(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    slow = await rig.client(rcvbuf=4096)
    slow.stop_reading()
    for size in (100_000, 150_000, 200_000, 230_000):  # whole in one read, and held
        await slow.post(CHAT, {"model": "m"})
        await (await node.next_call()).answer(b'{"x": "%b"}' % (b"x" * size))
        await rig.wait_until("processing", 0)
        again = await rig.ask(seed=size)
        await (await node.next_call()).answer({})
        assert (await again.reply()).status == 200
    for size in (100_000, 200_000):  # the same as a stream of one piece
        streaming = await rig.client(rcvbuf=4096)
        streaming.stop_reading()
        await streaming.post(CHAT, {"model": "m", "stream": True})
        call = await node.next_call()
        event = b"data: %b\n\n" % (b"x" * size)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        await call.write(head % len(event) + event)
        await call.end()
        await rig.wait_until("processing", 0)
        again = await rig.ask(seed=size)
        await (await node.next_call()).answer({})
        assert (await again.reply()).status == 200


@pytest.mark.parametrize(
    ("sent", "limit_s"),
    [(b"POST /v1/chat", 10.0), (HEAD, 10.0), (HEAD + b"\r\n", 60.0), (HEAD + b"\r\n{", 60.0)],
)
async def test_fault_08_a_request_that_drips_is_refused_in_time_while_others_are_served(
    rig: FaultRig, sent: bytes, limit_s: float
) -> None:
    node = await rig.node()
    await rig.start(node)
    slow = [await rig.client() for _ in range(20)]
    for client in slow:
        await client.send(sent)
    await rig.healthy()
    rig.clock.advance(limit_s / 2)
    for client in slow:
        await client.send(b"x")  # more of it is not more time
    await rig.healthy()
    served = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await served.reply()).status == 200
    rig.clock.advance(limit_s / 2)
    for client in slow:
        reply = await client.reply()
        assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
        assert await client.closed() == b""
    assert len(node.calls) == 1


async def test_fault_09_idle_connections_beyond_the_bound_make_room_for_new_ones(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    gateway = await rig.start(node, server={"connections_max": 50})
    idle = [await rig.client() for _ in range(200)]
    await rig.healthy()
    assert len(gateway._server.connections) <= 50
    served = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await served.reply()).status == 200
    for client in idle[:100]:  # the eldest went first
        with suppress(ConnectionResetError):
            assert await client.closed() == b""
    rig.clock.advance(76.0)  # idle_seconds
    for client in idle[100:]:
        with suppress(ConnectionResetError):
            assert await client.closed() == b""


async def test_fault_09_where_no_connection_is_idle_more_are_told_so_and_do_not_pile_up(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    gateway = await rig.start(node, server={"connections_max": 20})
    busy = [await rig.client() for _ in range(20)]
    for client in busy:
        await client.post(CHAT, {"model": "m"})
    relay = gateway.parts.relay
    await turns(lambda: len(relay.exchanges) == 20)  # none is idle any more
    told = await rig.client()
    reply = await told.reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "too_many_connections")
    assert reply.headers["retry-after"]
    assert await told.closed() == b""
    for _ in range(100):  # these do not go when they are told
        stubborn = socket.create_connection(("127.0.0.1", gateway.port))
        rig.stack.callback(stubborn.close)
    server = gateway._server
    await turns(lambda: len(server.lingering) >= 20)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(server.lingering) == 20
    rig.clock.advance(5.0)
    assert len(server.lingering) == 0
    for client in busy[1:]:
        client.abort()
    await turns(lambda: len(relay.exchanges) == 1)
    await rig.healthy()


async def turns(reached: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened, without asking the gateway."""
    for _ in range(10_000):
        if reached():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


def kernel_timer(port: int) -> tuple[str, float]:
    """Return which timer the kernel keeps for the gateway's end of a connection, and for how long.

    Its kind is 02 for the next keep-alive probe.
    """
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and fields[2].endswith(f":{port:04X}"):
            kind, _, ticks = fields[5].partition(":")
            return kind, int(ticks, 16) / 100
    raise AssertionError("no such connection")


async def test_fault_10_the_kernel_asks_a_silent_client_whether_it_is_still_there(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    client = await rig.ask(stream=True)
    await node.next_call()
    own_port = client._transport.get_extra_info("sockname")[1]
    kind, left_s = kernel_timer(own_port)
    assert kind == "02"
    assert left_s <= 30.0
    (connection,) = gateway._server.connections
    plain = connection.transport.get_extra_info("socket")
    # Probes are not sent while data is on its way; then this bounds how long it may go unanswered.
    assert 0 < plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


async def test_fault_10_a_waiting_stream_is_written_to_so_that_a_dead_client_is_noticed(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.ask()
    running = await node.next_call()
    client = await rig.ask(stream=True)
    await rig.wait_until("waiting", 1)
    rig.clock.advance(15.0)
    assert (await client.head()).status == 200
    assert (await client.chunk() or b"").startswith(b": queued position=1")
    client.abort()
    await rig.wait_until("waiting", 0)
    await running.answer({})
    await rig.wait_until("processing", 0)
    assert len(node.calls) == 1
