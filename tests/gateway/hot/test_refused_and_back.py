"""Who was refused and sends the same again keeps its place in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK

if TYPE_CHECKING:
    from forebay.testing import Call, FakeNode, RawClient, Reply

    from ..conftest import Rig

FIFO = {"fairness": "fifo", "max_size": 2}
KEYS = [{"name": "one", "key_env": "ONE", "max_running": 1}, {"name": "two", "key_env": "TWO"}]
SECRETS = {"ONE": "sk-one", "TWO": "sk-two"}


async def full(rig: Rig, **settings: Any) -> tuple[FakeNode, Call, list[RawClient]]:
    """Start a gateway whose only slot is taken, and whose line is full."""
    node = await rig.node()
    await rig.start(node, queue={**FIFO, **settings})
    _, running = await rig.run(node, user="z")
    return node, running, await rig.line_up(2, user="w")


async def refused(rig: Rig, **more: Any) -> Reply:
    reply = await (await rig.ask(**more)).reply()
    assert reply.status == 429, reply.body
    return reply


async def place_of(rig: Rig, waiting: list[RawClient], **more: Any) -> int:
    """Let a newcomer in, then one that comes back, and return the place of the latter."""
    waiting[0].close()
    await rig.wait_until("waiting", 1)
    await rig.line_up(1, user="new")
    waiting[1].close()
    await rig.wait_until("waiting", 1)
    headers = {"x-request-id": "back", **more.pop("headers", {})}
    await rig.line_up(1, headers=headers, **more)
    place: int = (await rig.get("/v1/queue/back")).json["position"]
    return place


async def test_who_comes_back_is_served_before_those_who_came_after_it(rig: Rig) -> None:
    node, running, waiting = await full(rig)
    await refused(rig, user="a")
    await running.answer(OK)
    running = await node.next_call()
    [newcomer] = await rig.line_up(1, user="new")
    await running.answer(OK)
    running = await node.next_call()
    [back] = await rig.line_up(1, user="a")
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    for client in waiting:
        await client.reply()
    first = await back.reply()
    assert (first.status, first.headers["x-queue-position"]) == (200, "1")
    assert (await newcomer.reply()).headers["x-queue-position"] == "2"


async def test_who_gave_up_waiting_and_sends_it_again_keeps_its_place(rig: Rig) -> None:
    _, _, waiting = await full(rig, max_size=3)
    [hasty] = await rig.line_up(1, user="a")
    waiting[0].close()
    await rig.wait_until("waiting", 2)
    await rig.line_up(1, user="new")
    hasty.close()
    await rig.wait_until("waiting", 2)
    await rig.line_up(1, user="a", headers={"x-request-id": "back"})
    assert (await rig.get("/v1/queue/back")).json["position"] == 2


async def test_where_it_is_still_full_the_number_is_kept(rig: Rig) -> None:
    _, _, waiting = await full(rig)
    for _ in range(2):
        await refused(rig, user="a")
    assert await place_of(rig, waiting, user="a") == 1


@pytest.mark.parametrize(
    "again",
    [
        {"user": "b"},
        {"user": "a", "messages": ["of the same length"]},
        {"user": "a", "messages": []},
        {"user": "a", "messages": ["THE same length as that"], "x": "y" * 5000},
    ],
    ids=["another user", "another end", "another length", "another start"],
)
async def test_another_body_is_new_unless_only_its_start_differs(
    rig: Rig, again: dict[str, Any]
) -> None:
    """Known are the length and the last 4 KiB; a mistake gains a user nothing from others."""
    _, _, waiting = await full(rig)
    first: dict[str, Any] = {"user": "a", "messages": ["OF the same length"]}
    if "x" in again:
        first |= {"messages": ["the same length as that"], "x": "y" * 5000}
    await refused(rig, **first)
    assert await place_of(rig, waiting, **again) == (1 if "x" in again else 2)


async def test_another_class_is_a_newcomer(rig: Rig) -> None:
    _, _, waiting = await full(rig, when_full="reject")
    low = {"x-forebay-priority": "low"}
    await refused(rig, user="a", headers=low)
    assert await place_of(rig, waiting, user="a") == 2


async def test_the_header_of_earlier_versions_means_nothing(rig: Rig) -> None:
    _, _, waiting = await full(rig)
    reply = await refused(rig, user="a")
    assert "x-forebay-return" not in reply.headers
    old = {"x-forebay-return": "0" * 32}
    assert await place_of(rig, waiting, user="b", headers=old) == 2


@pytest.mark.parametrize("late", [False, True])
async def test_it_is_kept_for_twice_the_delay_that_was_told(rig: Rig, late: bool) -> None:
    _, _, waiting = await full(rig)
    reply = await refused(rig, user="a")
    rig.clock.advance(2 * int(reply.headers["retry-after"]) - 0.001 if not late else 6.0)
    assert await place_of(rig, waiting, user="a") == 1 + late


async def test_what_a_key_was_refused_is_worth_nothing_to_another_key(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue=FIFO, keys=KEYS, environ=SECRETS)
    one, two = ({"authorization": f"Bearer {SECRETS[name]}"} for name in ("ONE", "TWO"))
    rig.headers = two
    client, running = await rig.run(node, headers=one, n=1)
    reply = await refused(rig, headers=one)
    assert reply.json["error"]["code"] == "user_queue_full"
    await rig.line_up(1, headers=two, n=2)
    [stranger] = await rig.line_up(1, headers=two)
    await running.answer(OK)
    assert (await client.reply()).status == 200
    running = await node.next_call()
    [back] = await rig.line_up(1, headers=one)
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    assert (await back.reply()).headers["x-queue-position"] == "1"
    assert (await stranger.reply()).headers["x-queue-position"] == "2"
