"""Rows 1-6: clients that go away cost nothing, whenever they go."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from .conftest import EVENT

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig

FDS = "/proc/self/fd"


def leave(client: RawClient, how: str) -> None:
    """Go: in good order or not."""
    client.close() if how == "FIN" else client.abort()


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("stream", [False, True])
async def test_fault_01_a_client_that_closes_while_queued_is_removed_and_never_dispatched(
    rig: FaultRig, how: str, stream: bool
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await rig.ask()
    running = await node.next_call()
    second = await rig.ask(stream=stream)
    await rig.wait_until("waiting", 1)
    leave(second, how)
    await rig.wait_until("waiting", 0)  # and no time has passed
    await running.answer({"choices": []})
    assert (await first.reply()).status == 200
    await rig.wait_until("processing", 0)
    assert len(node.calls) == 1
    assert await rig.metric("forebay_queue_cancelled_total") == 1


async def test_fault_01_a_client_that_leaves_the_line_is_not_charged_for_it(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"fairness": "tokens"})
    await rig.ask(user="c")
    running = await node.next_call()
    gone = await rig.ask(user="a", max_tokens=100_000)
    await rig.wait_until("waiting", 1)
    gone.close()
    await rig.wait_until("waiting", 0)
    await rig.ask(user="a", seed=1)
    await rig.wait_until("waiting", 1)
    await rig.ask(user="b", seed=2)
    await rig.wait_until("waiting", 2)
    await running.answer({})
    assert (await node.next_call()).json["seed"] == 1  # charged, it would come after b
    assert await rig.metric('forebay_tokens_total{kind="prompt"}') == 0


@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_fault_02_closing_in_mid_stream_aborts_the_node_and_frees_the_slot(
    rig: FaultRig, how: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    call = await node.next_call()
    await rig.ask(seed=2)
    await rig.wait_until("waiting", 1)
    await call.start_stream()
    for _ in range(3):
        await call.chunk(EVENT)
        await client.head() if not _ else None
        await client.chunk()
    leave(client, how)
    await call.gone()
    assert (await node.next_call()).json["seed"] == 2
    assert await rig.metric('forebay_tokens_total{kind="output"}') == 3  # the part it got


@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_fault_03_closing_a_call_without_stream_aborts_the_node_and_frees_the_slot(
    rig: FaultRig, how: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    await rig.ask(seed=2)
    await rig.wait_until("waiting", 1)
    leave(client, how)
    await call.gone()
    assert (await node.next_call()).json["seed"] == 2


@pytest.mark.parametrize("client_first", [False, True])
async def test_fault_04_a_client_that_leaves_as_its_slot_is_granted_gives_it_to_the_next(
    rig: FaultRig, client_first: bool
) -> None:
    node = await rig.node()
    await rig.start(node)
    for _ in range(40):
        await rig.ask(seed=1)
        running = await node.next_call()
        leaver = await rig.ask(seed=2)
        await rig.wait_until("waiting", 1)
        heir = await rig.ask(seed=3)
        await rig.wait_until("waiting", 2)
        if client_first:
            leaver.abort()
            await running.answer({})
        else:
            answering = asyncio.ensure_future(running.answer({}))
            leaver.abort()
            await answering
        granted = await node.next_call()
        if granted.json["seed"] == 2:  # it got as far as the node: then that must end
            await granted.gone()
            granted = await node.next_call()
        assert granted.json["seed"] == 3
        await granted.answer({})
        assert (await heir.reply()).status == 200
        await rig.wait_until("processing", 0)
    assert node.max_running == 1


async def deaf(node: FakeNode) -> tuple[socket.socket, list[socket.socket]]:
    """Make the node's port take no connection and refuse none: its line of callers is full."""
    await node.stop_listening()
    node.drop_connections()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", node.port))
    listener.listen(0)
    waiting = []
    for _ in range(4):
        caller = socket.socket()
        caller.setblocking(False)
        caller.connect_ex(("127.0.0.1", node.port))
        waiting.append(caller)
    return listener, waiting


async def test_fault_05_cancelling_twice_while_connecting_leaks_nothing(rig: FaultRig) -> None:
    node = await rig.node(slots=50)
    gateway = await rig.start(node)
    pool = next(iter(gateway.parts.nodes)).pool
    listener, callers = await deaf(node)
    before = len(os.listdir(FDS))
    for batch in range(6):
        ids = [f"r{batch}-{i}" for i in range(50)]
        clients = [await rig.ask(headers={"x-request-id": i}, stream=True) for i in ids]
        await rig.wait_until("processing", 50)
        assert len(pool.openings) == 50
        killer = await rig.client()
        for ticket, client in zip(ids, clients, strict=True):
            await killer.request("DELETE", f"/v1/queue/{ticket}")
            client.abort()
            assert (await killer.reply()).status in (200, 404)
        await rig.wait_until("processing", 0)
        assert not pool.openings
        killer.close()
    await rig.until(lambda: len(os.listdir(FDS)) <= before + 8, "sockets stayed open")
    for opened in (listener, *callers):
        opened.close()
    await node.listen()
    client = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200


async def test_fault_05_a_connect_cancelled_before_it_began_leaves_nothing(rig: FaultRig) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    pool = next(iter(gateway.parts.nodes)).pool
    opening = pool.open(lambda _: None)
    opening.cancel()
    opening.cancel()
    assert not pool.openings
    await node.idle()


async def test_fault_05_cancelling_at_any_moment_of_a_connect_leaves_no_connection(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=8)
    await rig.start(node)
    for turns in [*range(14)] * 8:
        client = await rig.ask()
        for _ in range(turns):
            await asyncio.sleep(0)
        client.abort()
    await rig.wait_until("processing", 0)
    await node.idle()


async def test_fault_06_thirty_large_streams_dropped_at_once_are_all_aborted(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=30)
    piece = b"data: %b\n\n" % (b"x" * 65_000)

    async def stream(call: Call) -> None:
        await call.start_stream()
        for _ in range(80):  # 5 MiB
            await call.chunk(piece)

    node.automatic = stream
    await rig.start(node)
    clients = [await rig.ask(stream=True) for _ in range(30)]
    for client in clients:
        assert (await client.head()).status == 200
        client.stop_reading()
    await rig.healthy()
    for client in clients:
        client.abort()
    await rig.healthy()
    await rig.wait_until("processing", 0)
    for call in node.calls:
        await call.gone()
    await node.idle()
