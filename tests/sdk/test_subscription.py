"""The long-lived subscription: it comes back by itself, and no wait hangs for ever."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from forebay.sdk import AsyncClient, AsyncSessionClient, NotFound, TurnFailed
from forebay.sdk.prompts import EventBuffer
from forebay.sdk.values import SessionEvent

from .conftest import until
from .scripted_server import SESSION

if TYPE_CHECKING:
    from .conftest import Place
    from .scripted_server import Exchange, ScriptedServer

PROMPT, EVENTS = f"/session/{SESSION}/prompt", f"/session/{SESSION}/events"
DONE = {"status": "completed", "text": "asked for", "finishReason": "stop", "usage": None}


@pytest.fixture
async def client(place: Place, server: ScriptedServer) -> AsyncClient:
    return await place.client(server.url)


@pytest.fixture
async def session(client: AsyncClient, server: ScriptedServer) -> AsyncSessionClient:
    session = await AsyncSessionClient.create_or_attach(client, model="m")
    await server.until(lambda: server.streams)
    return session


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_is_opened_again_where_it_was_left(
    session: AsyncSessionClient, server: ScriptedServer, place: Place, cut: bool
) -> None:
    sent = await session.send("hello")
    server.emit("text_delta", "p1", text="a")
    await until(lambda: session.last_event_id)
    server.drop_streams(cut=cut)
    server.emit("text_delta", "p1", text="b")
    server.complete("p1", "ab")
    assert (await sent.result()).text == "ab"
    said = [event.data["text"] async for event in sent.events()]
    assert said == ["a", "b", "ab"]
    again = [asked for asked in server.asked if asked.path == EVENTS][1]
    assert again.headers["last-event-id"] == "1"
    assert place.pace.slept == [0.5]


async def test_after_a_gap_the_gateway_is_asked_what_became_of_it(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent, other = await session.send("hello"), await session.send("hello")
    for stream in server.streams:
        stream.cut()
    server.streams.clear()
    server.complete("p1")
    server.held_from = 1
    server.turns = {"p1": DONE, "p2": {"status": "running"}}
    assert (await sent.result()).text == "asked for"
    assert not other.done
    server.complete("p2", "in time")
    assert (await other.result()).text == "in time"


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        ({"status": "failed", "error": {"code": "node_failed", "message": "?"}}, "node_failed"),
        ({"status": "cancelled", "error": {"code": "cancelled", "message": "?"}}, "cancelled"),
        (None, "outcome_unknown"),
    ],
)
async def test_after_a_gap_failures_are_told_too(
    session: AsyncSessionClient, server: ScriptedServer, turn: dict[str, object] | None, code: str
) -> None:
    sent = await session.send("hello")
    if turn is not None:
        server.turns["p1"] = turn
    server.emit("gap", None, missedFrom=1, missedTo=9, eventEpoch="e1")
    with pytest.raises(TurnFailed) as caught:
        await sent.result()
    assert caught.value.code == code


async def test_a_changed_epoch_is_a_reason_to_ask(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.turns = {"p1": DONE, "p2": {"status": "queued"}}
    server.epoch = "e2"
    second = await session.send("hello")
    server.emit("text_delta", "p2", text="x")  # anything that wakes the reader
    assert (await sent.result()).text == "asked for"
    assert not second.done


async def test_what_cannot_be_read_is_asked_for(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.turns["p1"] = DONE
    server.emit_raw("turn_complete", "{broken")
    assert (await sent.result()).text == "asked for"


async def test_doubt_stays_while_nobody_can_say(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    path = f"/session/{SESSION}/turns/p1"
    error = {"error": {"code": "internal_error", "message": "no"}}
    server.plan("GET", path, error, 500)
    server.emit("gap", None)
    await server.until(lambda: server.count("GET", path))
    server.turns["p1"] = DONE
    server.emit("text_delta", "p9", text="x")
    assert (await sent.result()).text == "asked for"


async def test_after_long_silence_the_gateway_is_asked(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.turns["p1"] = DONE
    for _ in range(4):
        server.streams[0].send(b": heartbeat\n\n")
    assert (await sent.result()).text == "asked for"


async def test_streams_that_end_and_say_nothing_are_a_reason_to_ask(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.turns["p1"] = DONE
    for _ in range(2):
        await server.until(lambda: server.streams)
        server.drop_streams()
    assert (await sent.result()).text == "asked for"


async def test_a_restart_is_lived_through(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    for reason in ("shutting_down", "dropped"):
        await server.until(lambda: server.streams)
        told = {"type": "stream_closed", "promptId": None, "reason": reason}
        server.streams[0].send(f"event: stream_closed\ndata: {json.dumps(told)}\n\n".encode())
        server.drop_streams()
    server.complete("p1", "after all")
    assert (await sent.result()).text == "after all"


async def test_a_session_that_is_gone_ends_the_waits(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    error = {"error": {"code": "session_not_found", "message": "no such session"}}
    server.plan("GET", EVENTS, error, 404)
    server.drop_streams()
    with pytest.raises(NotFound):
        await sent.result()


async def test_after_giving_up_the_next_prompt_listens_again(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.plan("GET", EVENTS, {"error": {"code": "not_found", "message": "no"}}, 404)
    server.drop_streams()
    with pytest.raises(NotFound):
        await sent.result()
    again = await session.send("hello")
    server.complete("p2", "heard")
    assert (await again.result()).text == "heard"


async def test_all_events_can_be_followed_until_the_session_is_closed(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    async def read() -> list[str]:
        return [event.type async for event in session.events()]

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    server.emit("text_delta", "p7", text="somebody else's")
    server.emit("session_closed", None, reason="idle")
    assert await reading == ["text_delta", "session_closed"]
    assert [event async for event in session.events()] == []


async def test_resuming_goes_on_after_a_known_event(
    client: AsyncClient, server: ScriptedServer
) -> None:
    for text in "abc":
        server.emit("text_delta", "p1", text=text)
    session = await AsyncSessionClient.resume(client, SESSION, 1)
    await until(lambda: session.last_event_id == 3)
    server.emit("session_closed", None, reason="idle")
    said = [event.data.get("text") async for event in session.events()]
    assert said == ["b", "c", None]


async def test_loading_fetches_the_history(client: AsyncClient, server: ScriptedServer) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    body = {"sessionId": SESSION, "messages": messages}
    server.plan("GET", f"/session/{SESSION}/messages", body)
    session = await AsyncSessionClient.load(client, SESSION)
    assert session.history == messages
    assert not session.is_new


async def test_a_session_that_is_not_there_is_made_where_a_model_is_named(
    client: AsyncClient, server: ScriptedServer
) -> None:
    gone = {"error": {"code": "session_not_found", "message": "no"}}
    for _ in range(2):
        server.plan("GET", "/session/old", gone, 404)
    with pytest.raises(NotFound):
        await AsyncSessionClient.create_or_attach(client, "old")
    made = await AsyncSessionClient.create_or_attach(client, "old", model="m", system="be brief")
    assert (made.session_id, made.is_new) == (SESSION, True)
    (asked,) = [asked for asked in server.asked if asked.method == "POST"]
    assert asked.json == {"model": "m", "system": "be brief"}
    with pytest.raises(ValueError, match="model"):
        await AsyncSessionClient.create_or_attach(client)
    with pytest.raises(ValueError, match="model"):
        await AsyncSessionClient.create_or_attach(client, SESSION, model="other")


# -- without a session client


async def test_one_prompt_follows_its_session_from_its_acceptance_on(
    client: AsyncClient, server: ScriptedServer
) -> None:
    server.emit("text_delta", "p0", text="long ago")

    async def finish_first(exchange: Exchange) -> None:
        before = len(server.events)
        server.emit("text_delta", "p1", text="fa")
        server.complete("p1", "fast")
        await server.accept(exchange, before)

    server.on_prompt = finish_first
    heard: list[SessionEvent] = []
    turn = await client.prompt(SESSION, [{"role": "user", "content": "a"}], on_event=heard.append)
    assert turn.text == "fast"
    assert [event.type for event in heard] == ["text_delta", "turn_complete"]
    assert server.asked[0].json == {"messages": [{"role": "user", "content": "a"}]}
    assert server.asked[1].headers["last-event-id"] == "1"
    await server.until(lambda: not server.streams)
    assert client.prompting.reservations.held(SESSION) == 0


async def test_an_older_server_may_answer_at_once(
    client: AsyncClient, server: ScriptedServer
) -> None:
    server.plan("POST", PROMPT, {"text": "whole", "extra": 1})
    assert (await client.prompt(SESSION, "a", deadline_ms=500, priority="high")).text == "whole"
    assert server.asked[0].json == {"prompt": "a", "deadlineMs": 500}
    assert server.asked[0].headers["x-forebay-priority"] == "high"
    assert client.prompting.reservations.held(SESSION) == 0


# -- the pieces


async def test_who_reads_too_slowly_is_told_what_is_missing() -> None:
    buffer = EventBuffer(3)
    for number in range(1, 6):
        buffer.add(SessionEvent("text_delta", number))
    buffer.end()
    found = [event async for event in buffer.read()]
    assert (found[0].type, found[0].data) == ("gap", {"missedFrom": 1, "missedTo": 2})
    assert [event.id for event in found[1:]] == [3, 4, 5]
