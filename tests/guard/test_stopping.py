"""Stopping: nothing new is taken, what runs may finish, and nobody is left waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .conftest import OK

if TYPE_CHECKING:
    from .conftest import GuardRig


async def test_a_draining_guard_takes_nothing_new_and_lets_a_stream_finish(rig: GuardRig) -> None:
    node = await rig.node()
    guard = await rig.start(node)
    client, call = await rig.stream(node)
    stopping = asyncio.ensure_future(guard.stop())
    await rig.until("state", "draining")
    reply = await (await rig.ask()).reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "shutting_down")
    assert reply.headers["retry-after"] == "1"
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert await client.chunk() == b"data: [DONE]\n\n"
    assert await client.chunk() is None
    await stopping
    await client.closed()


async def test_what_has_not_ended_in_time_is_broken_off(rig: GuardRig) -> None:
    node = await rig.node()
    guard = await rig.start(node)
    client, call = await rig.stream(node)
    await guard.stop(0.0)
    with pytest.raises((EOFError, ConnectionResetError)):
        await client.chunk()
    await call.gone()
    assert guard.slots.in_flight == 0


async def test_a_second_signal_does_not_wait(rig: GuardRig) -> None:
    node = await rig.node()
    guard = await rig.start(node, shutdown_s=3600.0)
    client = await rig.ask()
    await node.next_call()
    stopping = asyncio.ensure_future(guard.stop())
    await rig.until("state", "draining")
    guard.hurry()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "shutting_down")
    await stopping


async def test_an_idle_guard_stops_at_once_and_its_port_is_closed(rig: GuardRig) -> None:
    node = await rig.node()
    guard = await rig.start(node)
    client = await rig.ask()
    await (await node.next_call()).answer(OK)
    await client.reply()
    await guard.stop()
    await client.closed()
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        await rig.client()
