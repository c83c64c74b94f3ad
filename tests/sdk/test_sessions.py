"""Sessions of the real gateway, with a node whose every move the test decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.sdk import (
    AsyncSessionClient,
    NotFound,
    PendingPromptLimitError,
    PromptQueueFullError,
    Refused,
    SessionEnded,
    TurnFailed,
)

from .conftest import piece, say

if TYPE_CHECKING:
    from forebay.sdk import AsyncClient, SessionEvent
    from forebay.testing import Call, FakeNode

    from .conftest import Place


@pytest.fixture
async def node(place: Place) -> FakeNode:
    node = await place.node()
    await place.start(node)
    return node


@pytest.fixture
async def client(place: Place, node: FakeNode) -> AsyncClient:
    return await place.client()


async def new(client: AsyncClient, **options: object) -> AsyncSessionClient:
    return await AsyncSessionClient.create_or_attach(client, model="m", **options)  # type: ignore[arg-type]


async def test_a_conversation_is_held_by_the_gateway(client: AsyncClient, node: FakeNode) -> None:
    session = await new(client, system="be brief", max_tokens=9, options={"temperature": 0.5})
    assert (session.is_new, session.model) == (True, "m")
    heard: list[SessionEvent] = []
    asking = asyncio.ensure_future(session.prompt("one", on_event=heard.append))
    call = await node.next_call()
    assert call.json["max_tokens"] == 9
    assert call.json["temperature"] == 0.5
    await say(call, "first ", "answer")
    turn = await asking
    assert (turn.text, turn.finish_reason, turn.node) == ("first answer", "stop", "n1")
    assert [event.type for event in heard] == ["text_delta", "text_delta", "turn_complete"]
    asking = asyncio.ensure_future(session.prompt([{"role": "user", "content": "two"}]))
    call = await node.next_call()
    said = [message["content"] for message in call.json["messages"]]
    assert said == ["be brief", "one", "first answer", "two"]
    await say(call, "second")
    assert (await asking).text == "second"
    loaded = await AsyncSessionClient.load(client, session.session_id)
    assert [message["content"] for message in loaded.history][-2:] == ["two", "second"]
    state = await loaded.state()
    assert (state.turns, state.pending_count, state.last_event_id) == (2, 0, session.last_event_id)


async def test_the_local_limit_refuses_before_the_gateways_does(
    client: AsyncClient, node: FakeNode
) -> None:
    told = (await client.capabilities()).limits.max_pending_prompts_per_session
    assert told == 5
    session = await new(client, max_pending=told)
    sent = [await session.send(str(number)) for number in range(5)]
    with pytest.raises(PendingPromptLimitError):
        await session.send("one more")
    pending = await session.pending()
    assert [one.state for one in pending.prompts] == ["running"] + ["queued"] * 4
    assert (pending.limit, pending.pending_count) == (5, 5)
    free = await AsyncSessionClient.create_or_attach(client, session.session_id, max_pending=None)
    with pytest.raises(PromptQueueFullError) as caught:
        await free.send("one more")
    full = caught.value
    assert (full.session_id, full.limit, full.pending_count) == (session.session_id, 5, 5)
    assert (full.status, full.retry_after_s) == (503, 5.0)
    for number in range(5):
        await say(await node.next_call(), str(number))
        assert (await sent[number].result()).text == str(number)
    assert session.pending_here == free.pending_here == 0


async def test_fast_turns_leave_nothing_taken(client: AsyncClient, node: FakeNode) -> None:
    async def at_once(call: Call) -> None:
        await say(call, "fast")

    node.automatic = at_once
    session = await new(client, max_pending=1)
    for _ in range(30):
        assert (await session.prompt("hello")).text == "fast"
        assert (await client.prompt(session.session_id, "hello")).text == "fast"
    assert session.pending_here == 0


async def test_a_turn_that_fails_is_told_and_the_next_one_runs(
    client: AsyncClient, node: FakeNode
) -> None:
    session = await new(client)
    first, second = await session.send("one"), await session.send("two")
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(piece("half"))
    call.reset()
    with pytest.raises(TurnFailed) as caught:
        await first.result()
    assert (caught.value.status, caught.value.prompt_id) == ("failed", first.prompt_id)
    await say(await node.next_call(), "fine")
    assert (await second.result()).text == "fine"


async def test_turns_are_cancelled_removed_and_withdrawn(
    client: AsyncClient, node: FakeNode
) -> None:
    session = await new(client)
    assert await session.cancel() is None
    running, waiting, third = [await session.send(text) for text in "abc"]
    call = await node.next_call()
    assert await session.remove(waiting.prompt_id)
    with pytest.raises(Refused) as caught:
        await session.remove(running.prompt_id)
    assert caught.value.status == 409
    assert await session.cancel() == running.prompt_id
    await call.gone()
    for sent in (running, waiting):
        with pytest.raises(TurnFailed) as failed:
            await sent.result()
        assert failed.value.status == "cancelled"
    call = await node.next_call()
    await session.withdraw(third.prompt_id)
    await call.gone()
    with pytest.raises(TurnFailed):
        await third.result()
    await session.withdraw(third.prompt_id)
    fourth, fifth = await session.send("d"), await session.send("e")
    call = await node.next_call()
    await session.withdraw(fifth.prompt_id)
    with pytest.raises(TurnFailed):
        await fifth.result()
    assert not fourth.done
    await say(call, "fine")
    assert (await fourth.result()).text == "fine"


async def test_a_deadline_is_kept(client: AsyncClient, node: FakeNode) -> None:
    session = await new(client)
    with pytest.raises(TurnFailed) as caught:
        await session.prompt("hello", deadline_ms=1)
    assert caught.value.code == "deadline_exceeded"
    with pytest.raises(Refused) as refused:
        await session.prompt("hello", deadline_ms=-1)
    assert refused.value.param == "deadlineMs"
    assert session.pending_here == 0


async def test_a_branch_has_the_same_history(client: AsyncClient, node: FakeNode) -> None:
    session = await new(client)
    asking = asyncio.ensure_future(session.prompt("one"))
    await say(await node.next_call(), "first")
    await asking
    branch = await session.branch()
    assert branch.session_id != session.session_id
    assert await branch.messages() == await session.messages()


async def test_a_prompt_that_waits_can_be_asked_about(client: AsyncClient, node: FakeNode) -> None:
    chat = asyncio.ensure_future(client.chat("m", "in the way"))
    call = await node.next_call()
    session = await new(client)
    sent = await session.send("hello")
    events = sent.events()
    added = await anext(events)
    assert (added.type, added.data["position"], added.data["waitsFor"]) == (
        "pending_prompt_added",
        1,
        "queue",
    )
    place = await client.queue(sent.prompt_id)
    assert (place.position, place.state) == (1, "waiting")
    await say(call, "done")
    await chat
    await say(await node.next_call(), "hi")
    assert [event.type async for event in events] == [
        "pending_prompt_started",
        "text_delta",
        "turn_complete",
    ]


async def test_deleting_a_session_ends_everything_in_it(
    client: AsyncClient, node: FakeNode
) -> None:
    session = await new(client)
    other = await AsyncSessionClient.load(client, session.session_id)
    sent = await other.send("hello")
    call = await node.next_call()
    await session.close(delete=True)
    with pytest.raises((TurnFailed, SessionEnded)):
        await sent.result()
    await call.gone()
    with pytest.raises(NotFound):
        await other.send("hello")
    with pytest.raises(NotFound):
        await AsyncSessionClient.load(client, session.session_id)
    assert other.pending_here == 0


async def test_a_session_outlives_the_gateway_and_its_subscription_comes_back(
    place: Place, node: FakeNode
) -> None:
    await place.stack.aclose()
    node = await place.node()
    first = await place.start(node, server={"shutdown_seconds": 0.1})
    port = first.port
    client = await place.client()
    session = await new(client)
    asking = asyncio.ensure_future(session.prompt("one"))
    await say(await node.next_call(), "first")
    await asking
    lost = await session.send("two")
    await node.next_call()
    await first.stop()
    await place.start(node, server={"port": port})
    with pytest.raises(TurnFailed) as caught:
        await lost.result()
    assert caught.value.code in ("shutting_down", "outcome_unknown")
    again = asyncio.ensure_future(session.prompt("three"))
    await say(await node.next_call(), "third")
    assert (await again).text == "third"
    contents = [message["content"] for message in await session.messages()]
    assert contents[:2] == ["one", "first"]
    assert contents[-2:] == ["three", "third"]


async def test_resuming_hears_what_was_missed(client: AsyncClient, node: FakeNode) -> None:
    session = await new(client)
    before = session.last_event_id
    asking = asyncio.ensure_future(session.prompt("one"))
    await say(await node.next_call(), "first")
    await asking
    resumed = await AsyncSessionClient.resume(client, session.session_id, before)
    events = resumed.events()
    assert [(await anext(events)).type for _ in range(2)] == ["text_delta", "turn_complete"]
    await events.aclose()
