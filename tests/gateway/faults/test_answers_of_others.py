"""A node that sends more, or less, than it was asked for answers nobody else by that."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import FaultRig

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def whole(text: str) -> bytes:
    """Return an answer that says so."""
    body = b'{"for":"%b"}' % text.encode()
    return HEAD % (len(body), body)


def chunked(text: str) -> bytes:
    """Return the same in chunks."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    body = b'{"for":"%b"}' % text.encode()
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


EXCESS = {
    "a whole answer": whole("nobody"),
    "an answer in chunks": chunked("nobody"),
    "half an answer": whole("nobody")[:40],
    "garbage": b"\x00\xff",
    "one byte": b"x",
}


@pytest.mark.parametrize("make", [whole, chunked])
@pytest.mark.parametrize("excess", EXCESS)
@pytest.mark.parametrize("when", ["with it", "right after"])
async def test_what_nobody_asked_for_is_not_given_to_the_one_who_is_next(
    rig: FaultRig, make: Callable[[str], bytes], excess: str, when: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    first, call = await rig.run(node, user="first")
    second = await rig.ask(user="second")  # waits for the slot, and gets it as the first one ends
    await rig.wait_until("waiting", 1)
    if when == "with it":
        await call.write(make("first") + EXCESS[excess])
    else:
        await call.write(make("first"))
        await call.write(EXCESS[excess])
    await call.end()
    assert (await first.reply()).json == {"for": "first"}
    call = await node.next_call()
    await call.write(make("second"))
    await call.end()
    assert (await second.reply()).json == {"for": "second"}


@pytest.mark.parametrize("make", [whole, chunked])
@pytest.mark.parametrize("excess", EXCESS)
async def test_what_comes_while_nobody_asks_ends_the_connection(
    rig: FaultRig, make: Callable[[str], bytes], excess: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    first, call = await rig.run(node)
    await call.write(make("first"))
    await call.end()
    assert (await first.reply()).json == {"for": "first"}
    await call.write(EXCESS[excess])
    await call.gone()
    second, call = await rig.run(node)
    await call.write(make("second"))
    await call.end()
    assert (await second.reply()).json == {"for": "second"}


async def test_an_answer_that_comes_one_late_does_not_shift_all_that_follow(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    first, call = await rig.run(node)
    await call.write(whole("first"))
    assert (await first.reply()).json == {"for": "first"}
    second, late = await rig.run(node)  # on the same connection
    third = await rig.ask()
    await rig.wait_until("waiting", 1)
    await call.write(HEAD % (5, b"hello"))  # taken for the answer to the second, and no good
    assert (await second.reply()).status == 502
    call = await node.next_call()
    with suppress(ConnectionResetError):
        await late.write(whole("second"))  # must not be taken for the answer to the third
    with suppress(ConnectionResetError):
        await call.answer({"for": "third"})
    assert (await third.reply()).json == {"for": "third"}


async def test_a_node_that_was_caught_gets_a_connection_for_each_request(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    used = []
    for number in range(4):
        client, call = await rig.run(node)
        used.append(call.connection)
        await call.write(whole(str(number)) + (whole("nobody") if number == 1 else b""))
        await call.end()
        assert (await client.reply()).json == {"for": str(number)}
    assert used[0] == used[1]
    assert len({used[1], used[2], used[3]}) == 3


async def test_an_answer_that_is_cut_short_is_never_filled_up_by_the_next(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    used = []
    for number in range(3):
        client, call = await rig.run(node)
        used.append(call.connection)
        if number == 0:
            await call.write(whole("first")[:-3])
            call.close()
            assert (await client.reply()).status == 502
        else:
            await call.answer({"for": number})
            assert (await client.reply()).json == {"for": number}
    assert len(set(used)) == 3


@pytest.mark.parametrize("status", [b"000", b"007", b"099", b"600", b"999"])
async def test_a_status_that_is_none_is_a_failed_node(rig: FaultRig, status: bytes) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client, call = await rig.run(node)
    await call.write(whole("x").replace(b"200", status))
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "node_failed")
    await call.gone()


async def test_of_a_good_node_connections_are_used_again_one_for_each_slot(rig: FaultRig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)

    async def answer_all() -> None:
        for number in range(40):
            await (await node.next_call()).answer({"for": number})

    answering = asyncio.create_task(answer_all())
    clients = [await rig.ask() for _ in range(40)]
    for client in clients:
        assert (await client.reply()).status == 200
    await answering
    assert len({call.connection for call in node.calls}) <= 4
