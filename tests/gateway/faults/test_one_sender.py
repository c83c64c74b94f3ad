"""Row 79, and rows 22 to 26 with others' traffic beside them: one sender costs nobody a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.nodes.health import TOGETHER_S

from .conftest import EVENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.testing import FakeNode
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig


async def answers_others(rig: FaultRig, node: FakeNode) -> None:
    """Answer somebody else, on a connection that is not kept: a kept one may be closed anyway."""
    client = await rig.ask(user="good")
    await (await node.next_call()).answer({}, headers={"connection": "close"})
    assert (await client.reply()).status == 200


async def test_fault_79_streams_of_one_sender_that_never_begin_leave_the_node_to_the_others(
    rig: FaultRig,
) -> None:
    """Two every 25 s, as one who tries again a prompt that is too long for the machine."""
    node = await rig.node(slots=16)
    gateway = await rig.start(node)
    (backend,) = gateway.parts.nodes
    for _ in range(12):
        for _ in range(2):
            await rig.ask(stream=True, user="bad")
            await node.next_call()
        for _ in range(5):
            await answers_others(rig, node)
            rig.clock.advance(5.0)
            assert (backend.told.state, backend.told.slots) == ("online", 16)
    assert backend.failures == {"first_byte_timeout": 16}


async def hangs(rig: FaultRig, _: Call) -> None:
    rig.clock.advance(119.0)


async def drips(rig: FaultRig, call: Call) -> None:
    await call.start_stream()
    await call.chunk(EVENT)
    rig.clock.advance(1.0)
    await rig.queue()
    rig.clock.advance(60.0)


async def dies(_: FaultRig, call: Call) -> None:
    await call.start_stream()
    await call.chunk(EVENT)
    call.close()


async def breaks(_: FaultRig, call: Call) -> None:
    call.reset()


async def babbles(_: FaultRig, call: Call) -> None:
    await call.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


async def errs(_: FaultRig, call: Call) -> None:
    await call.answer({"error": "no"}, 500)


@pytest.mark.parametrize("fail", [errs, dies, breaks, babbles, hangs, drips])
async def test_faults_22_23_24_25_26_what_fails_for_one_sender_is_not_held_against_the_node(
    rig: FaultRig, fail: Callable[[FaultRig, Call], Awaitable[None]]
) -> None:
    node = await rig.node(slots=2)
    gateway = await rig.start(node, retry={"attempts": 1})
    (backend,) = gateway.parts.nodes
    for _ in range(3):
        rig.clock.advance(TOGETHER_S)
        client = await rig.ask(stream=True, user="bad")
        call = await node.next_call()
        rig.clock.advance(1.0)
        await answers_others(rig, node)
        await fail(rig, call)
        await client.reply()
        assert (backend.told.state, backend.told.slots) == ("online", 2)
    running = [await rig.run(node, user="good") for _ in range(2)]
    for number, user in enumerate(("bad", "good"), start=1):
        await rig.ask(user=user)
        await rig.wait_until("waiting", number)
    await running[0][1].answer({})
    expected = "bad" if fail is errs else "good"  # a status alone is no strike
    assert (await node.next_call()).json["user"] == expected
