"""The local cap of a session: taken before anything is sent, and given back on every path."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from forebay.sdk import (
    AsyncClient,
    AsyncSessionClient,
    BadAnswer,
    ClientClosed,
    GatewayAway,
    NodeFailed,
    PendingPromptLimitError,
    PromptQueueFullError,
    SessionEnded,
    TurnFailed,
)

from .conftest import until
from .scripted_server import QUEUE_FULL, SESSION, Exchange

if TYPE_CHECKING:
    from .conftest import Place
    from .scripted_server import ScriptedServer

PROMPT = f"/session/{SESSION}/prompt"
DONE = {"status": "completed", "text": "asked for", "finishReason": "stop", "usage": None}


@pytest.fixture
async def client(place: Place, server: ScriptedServer) -> AsyncClient:
    return await place.client(server.url)


@pytest.fixture
async def session(client: AsyncClient, server: ScriptedServer) -> AsyncSessionClient:
    session = await AsyncSessionClient.create_or_attach(client, model="m", max_pending=2)
    await server.until(lambda: server.streams)
    return session


# -- what is taken


async def test_one_more_than_the_limit_is_refused_here_and_nothing_is_sent(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    for _ in range(2):
        await session.send("hello")
    with pytest.raises(PendingPromptLimitError) as caught:
        await session.send("hello")
    assert (caught.value.session_id, caught.value.limit, caught.value.pending_count) == ("s1", 2, 2)
    assert server.count("POST", PROMPT) == 2
    assert session.pending_here == 2


async def test_it_is_taken_before_the_request_is_answered(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        arrived.set()
        await go_on.wait()
        await server.accept(exchange)

    server.on_prompt = hold
    sending = [asyncio.ensure_future(session.send("hello")) for _ in range(2)]
    await arrived.wait()
    with pytest.raises(PendingPromptLimitError):
        await session.send("hello")
    go_on.set()
    await asyncio.gather(*sending)


async def test_five_are_the_default(client: AsyncClient, server: ScriptedServer) -> None:
    session = await AsyncSessionClient.create_or_attach(client, model="m")
    for _ in range(5):
        await session.send("hello")
    with pytest.raises(PendingPromptLimitError):
        await session.send("hello")


@pytest.mark.parametrize("no_limit", [None, 0, math.inf, 0.0])
async def test_none_zero_and_infinity_mean_no_limit(
    client: AsyncClient, server: ScriptedServer, no_limit: float | None
) -> None:
    session = await AsyncSessionClient.create_or_attach(client, model="m", max_pending=no_limit)
    for _ in range(8):
        await session.send("hello")
    assert session.pending_here == 8


async def test_the_capability_value_fits_as_it_is(
    client: AsyncClient, server: ScriptedServer
) -> None:
    for value in (3, None):
        limits = {"maxPendingPromptsPerSession": value}
        server.plan("GET", "/capabilities", {"version": "1", "limits": limits})
        told = (await client.capabilities()).limits.max_pending_prompts_per_session
        assert told == value
        session = await AsyncSessionClient.create_or_attach(client, model="m", max_pending=told)
        await session.close()


@pytest.mark.parametrize("wrong", [-5, 1.5, math.nan, -math.inf, "5", True])
async def test_a_limit_that_is_none_is_refused_by_name(server: ScriptedServer, wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_pending"):
        AsyncClient(server.url, max_pending=wrong)
    async with AsyncClient(server.url) as client:
        for begin in (
            AsyncSessionClient.create_or_attach(client, model="m", max_pending=wrong),
            AsyncSessionClient.load(client, SESSION, max_pending=wrong),
            AsyncSessionClient.resume(client, SESSION, 0, max_pending=wrong),
        ):
            with pytest.raises(ValueError, match="max_pending"):
                await begin
    assert server.asked == []


async def test_two_session_clients_share_one_count_and_each_has_its_own_limit(
    client: AsyncClient, server: ScriptedServer
) -> None:
    narrow = await AsyncSessionClient.create_or_attach(client, SESSION, max_pending=1)
    wide = await AsyncSessionClient.create_or_attach(client, SESSION, max_pending=3)
    await wide.send("hello")
    assert narrow.pending_here == wide.pending_here == 1
    with pytest.raises(PendingPromptLimitError):
        await narrow.send("hello")
    await wide.send("hello")
    with pytest.raises(PendingPromptLimitError) as caught:
        await narrow.send("hello")
    assert (caught.value.limit, caught.value.pending_count) == (1, 2)


# -- what is given back


async def test_completion_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.complete("p1", "hi")
    turn = await sent.result()
    assert (turn.text, turn.node, turn.waited_ms) == ("hi", "n1", 7)
    assert turn.usage is not None
    assert turn.usage.completion_tokens == 2
    assert session.pending_here == 0


async def test_turn_error_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    asking = asyncio.ensure_future(session.prompt("hello"))
    await server.until(lambda: server.count("POST", PROMPT))
    error = {"code": "deadline_exceeded", "message": "too late", "retryAfterMs": 1500}
    server.emit("turn_error", "p1", status="failed", error=error)
    with pytest.raises(TurnFailed) as caught:
        await asking
    failed = caught.value
    assert (failed.code, failed.message) == ("deadline_exceeded", "too late")
    assert (failed.prompt_id, failed.status, failed.retry_after_s) == ("p1", "failed", 1.5)
    assert session.pending_here == 0


async def test_aborting_the_wait_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    asking = asyncio.ensure_future(session.prompt("hello"))
    await server.until(lambda: server.count("POST", PROMPT))
    assert session.pending_here == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert session.pending_here == 0


async def test_aborting_one_prompt_without_a_session_client_gives_it_back(
    client: AsyncClient, server: ScriptedServer
) -> None:
    asking = asyncio.ensure_future(client.prompt(SESSION, "hello"))
    await server.until(lambda: server.streams)
    assert client.prompting.reservations.held(SESSION) == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert client.prompting.reservations.held(SESSION) == 0
    await server.until(lambda: not server.streams)


async def test_aborting_the_request_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    async def hold(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    server.on_prompt = hold
    sending = asyncio.ensure_future(session.send("hello"))
    await server.until(lambda: server.count("POST", PROMPT))
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert session.pending_here == 0


async def test_a_callback_that_fails_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    def fail(event: object) -> None:
        raise ZeroDivisionError

    asking = asyncio.ensure_future(session.prompt("hello", on_event=fail))
    await server.until(lambda: server.count("POST", PROMPT))
    server.emit("text_delta", "p1", text="h")
    with pytest.raises(ZeroDivisionError):
        await asking
    assert session.pending_here == 0


async def test_a_failed_request_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    error = {"code": "internal_error", "message": "no"}
    server.plan("POST", PROMPT, {"error": error}, 500)
    with pytest.raises(NodeFailed):
        await session.send("hello")
    assert session.pending_here == 0


async def test_a_request_whose_answer_is_lost_gives_it_back_and_is_not_sent_again(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    async def lose(exchange: Exchange) -> None:
        exchange.cut()

    server.on_prompt = lose
    with pytest.raises(GatewayAway) as caught:
        await session.send("hello")
    assert caught.value.sent
    assert session.pending_here == 0
    assert server.count("POST", PROMPT) == 1


async def test_an_acceptance_that_cannot_be_read_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    for wrong in (b"", b"{", {"promptId": 7, "lastEventId": 1}, {"lastEventId": 1}):
        server.plan("POST", PROMPT, wrong, 202)
        with pytest.raises(BadAnswer):
            await session.send("hello")
        assert session.pending_here == 0


async def test_an_end_that_cannot_be_read_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.emit("turn_complete", "p1", text=7)
    with pytest.raises(BadAnswer):
        await sent.result()
    assert session.pending_here == 0


async def test_events_that_stay_unreadable_give_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    server.turns["p1"] = {"status": "running"}
    sent = await session.send("hello")
    for _ in range(3):
        server.emit_raw("turn_complete", "{no json")
    with pytest.raises(BadAnswer):
        await sent.result()
    assert session.pending_here == 0


async def test_the_end_of_the_stream_gives_it_back_when_nobody_comes_back(
    session: AsyncSessionClient, server: ScriptedServer, place: Place
) -> None:
    sent = await session.send("hello")
    await server.go_away()
    with pytest.raises(GatewayAway):
        await sent.result()
    assert session.pending_here == 0
    assert 600 <= place.pace.monotonic_s() < 660
    await server.start()


async def test_the_end_of_the_session_gives_it_back(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    sent = await session.send("hello")
    server.emit("session_closed", None, reason="deleted")
    with pytest.raises(SessionEnded):
        await sent.result()
    assert session.pending_here == 0


async def test_closing_gives_it_back(session: AsyncSessionClient, server: ScriptedServer) -> None:
    sent = await session.send("hello")
    await session.close()
    with pytest.raises(ClientClosed):
        await sent.result()
    assert session.pending_here == 0
    with pytest.raises(ClientClosed):
        await session.send("hello")


async def test_a_turn_that_ends_before_its_acceptance_arrives_leaves_nothing_taken(
    session: AsyncSessionClient, server: ScriptedServer
) -> None:
    heard = asyncio.Event()

    async def finish_first(exchange: Exchange) -> None:
        before = len(server.events)
        server.emit("text_delta", "p1", text="fa")
        server.complete("p1", "fast")
        await heard.wait()
        await server.accept(exchange, before)

    server.on_prompt = finish_first
    sending = asyncio.ensure_future(session.send("hello"))
    await until(lambda: session.last_event_id == 2)
    heard.set()
    sent = await sending
    assert (await sent.result()).text == "fast"
    assert [event.type async for event in sent.events()] == ["text_delta", "turn_complete"]
    assert session.pending_here == 0


# -- the server's own cap


async def test_the_servers_503_is_an_error_of_its_own_and_is_not_tried_again(
    session: AsyncSessionClient, server: ScriptedServer, place: Place
) -> None:
    server.plan("POST", PROMPT, QUEUE_FULL, 503, {"retry-after": "5"})
    with pytest.raises(PromptQueueFullError) as caught:
        await session.send("hello")
    full = caught.value
    assert (full.status, full.code, full.retry_after_s) == (503, "prompt_queue_full", 5.0)
    assert (full.session_id, full.limit, full.pending_count) == ("s1", 5, 5)
    assert full.message == "the session's queue is full"
    assert (session.pending_here, server.count("POST", PROMPT)) == (0, 1)


async def test_it_is_waited_for_where_that_is_asked_for(
    place: Place, server: ScriptedServer
) -> None:
    client = await place.client(server.url, retry_queue_full=True)
    session = await AsyncSessionClient.create_or_attach(client, model="m")
    server.plan("POST", PROMPT, QUEUE_FULL, 503, {"retry-after": "5"})
    sent = await session.send("hello")
    assert sent.prompt_id == "p1"
    assert place.pace.slept == [6.25]
