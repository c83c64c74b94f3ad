"""`X-Forebay-Return`: who was refused and comes back keeps its place in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import Call, FakeNode, RawClient, Reply

    from ..conftest import Rig

RETURN = "x-forebay-return"
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


async def place_of(rig: Rig, waiting: list[RawClient], headers: dict[str, str], **body: Any) -> int:
    """Let a newcomer in, then one that comes back, and return the place of the latter."""
    waiting[0].close()
    await rig.wait_until("waiting", 1)
    await rig.line_up(1, user="new")
    waiting[1].close()
    await rig.wait_until("waiting", 1)
    await rig.line_up(1, headers={"x-request-id": "back", **headers}, **body)
    place: int = (await rig.get("/v1/queue/back")).json["position"]
    return place


async def test_who_comes_back_is_served_before_those_who_came_after_it(rig: Rig) -> None:
    node, running, waiting = await full(rig)
    ticket = (await refused(rig, user="a")).headers[RETURN]
    await running.answer(OK)
    running = await node.next_call()
    [newcomer] = await rig.line_up(1, user="new")
    await running.answer(OK)
    running = await node.next_call()
    [back] = await rig.line_up(1, user="a", headers={RETURN: ticket})
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    for client in waiting:
        await client.reply()
    first = await back.reply()
    assert (first.status, first.headers["x-queue-position"]) == (200, "1")
    assert (await newcomer.reply()).headers["x-queue-position"] == "2"
    assert RETURN not in first.headers
    assert not any(RETURN in call.headers for call in node.calls)


async def test_where_it_is_still_full_another_one_keeps_the_same_number(rig: Rig) -> None:
    _, _, waiting = await full(rig)
    first = (await refused(rig, user="a")).headers[RETURN]
    again = (await refused(rig, user="a", headers={RETURN: first})).headers[RETURN]
    assert again != first
    assert await place_of(rig, waiting, {RETURN: again}, user="a") == 1


@pytest.mark.parametrize(
    ("shown", "body"),
    [
        ("{}", {"user": "b"}),
        ("0123456789abcdef0123456789abcdef", {"user": "a"}),
        ("\xe9" * 3000, {"user": "a"}),
        ("", {"user": "a"}),
    ],
    ids=["another user", "unknown", "nonsense", "empty"],
)
async def test_one_that_does_not_count_is_no_error(
    rig: Rig, shown: str, body: dict[str, str]
) -> None:
    _, _, waiting = await full(rig)
    ticket = (await refused(rig, user="a")).headers[RETURN]
    headers = {RETURN: shown.replace("{}", ticket)}
    assert await place_of(rig, waiting, headers, **body) == 2


async def test_another_class_is_a_newcomer(rig: Rig) -> None:
    _, _, waiting = await full(rig)
    low = {"x-forebay-priority": "low"}
    ticket = (await refused(rig, user="a", headers=low)).headers[RETURN]
    assert await place_of(rig, waiting, {RETURN: ticket}, user="a") == 2


async def test_one_counts_once_though_a_connection_sends_the_same_head_again(rig: Rig) -> None:
    node, running, waiting = await full(rig)
    ticket = (await refused(rig, user="a")).headers[RETURN]
    for client in waiting:
        client.close()
    await rig.wait_until("waiting", 0)
    client = await rig.client()
    body, headers = {"model": "m", "messages": [], "user": "a"}, {RETURN: ticket}
    await client.post(CHAT, body, headers)
    await rig.wait_until("waiting", 1)
    await running.answer(OK)
    running = await node.next_call()
    await rig.line_up(1, user="new")
    await running.answer(OK)
    await client.reply()
    running = await node.next_call()
    await rig.line_up(1, user="new")
    await client.post(CHAT, body, headers)
    await rig.wait_until("waiting", 2)
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    assert (await client.reply()).headers["x-queue-position"] == "2"


@pytest.mark.parametrize("late", [False, True])
async def test_it_lasts_for_twice_the_delay_that_was_told(rig: Rig, late: bool) -> None:
    _, _, waiting = await full(rig)
    reply = await refused(rig, user="a")
    rig.clock.advance(2 * int(reply.headers["retry-after"]) - 0.001 if not late else 6.0)
    assert await place_of(rig, waiting, {RETURN: reply.headers[RETURN]}, user="a") == 1 + late


async def test_a_key_at_its_own_bound_gets_one_that_is_worth_nothing_to_another_key(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue=FIFO, keys=KEYS, environ=SECRETS)
    one, two = ({"authorization": f"Bearer {SECRETS[name]}"} for name in ("ONE", "TWO"))
    rig.headers = two
    client, running = await rig.run(node, headers=one)
    reply = await refused(rig, headers=one)
    assert reply.json["error"]["code"] == "user_queue_full"
    ticket = {RETURN: reply.headers[RETURN]}
    await rig.line_up(1, headers=two)
    [stranger] = await rig.line_up(1, headers={**two, **ticket})
    await running.answer(OK)
    assert (await client.reply()).status == 200
    running = await node.next_call()
    [back] = await rig.line_up(1, headers={**one, **ticket})
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    assert (await back.reply()).headers["x-queue-position"] == "1"
    assert (await stranger.reply()).headers["x-queue-position"] == "2"


async def test_other_refusals_carry_none(rig: Rig) -> None:
    await full(rig)
    hasty = await refused(rig, user="a", headers={"x-forebay-max-wait": "0"})
    assert hasty.json["error"]["code"] == "deadline_unreachable"
    unknown = await (await rig.ask("nothing")).reply()
    assert (hasty.headers.get(RETURN), unknown.headers.get(RETURN)) == (None, None)


@pytest.mark.parametrize(
    ("kind", "path"),
    [("llama.cpp", CHAT), ("llama.cpp", "/v1/messages"), ("ollama", "/api/chat")],
)
async def test_every_dialect_has_it_whatever_the_status(rig: Rig, kind: str, path: str) -> None:
    node = await rig.node(kind=kind, slots=1)
    await rig.start(node, queue={"max_size": 1, "full_status": 503})
    await rig.run(node, path=path, max_tokens=1)
    await rig.line_up(1, path=path, max_tokens=1)
    reply = await (await rig.ask(path=path, max_tokens=1)).reply()
    assert (reply.status, len(reply.headers[RETURN])) == (503, 32)
