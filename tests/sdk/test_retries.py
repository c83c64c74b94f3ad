"""When the client tries again, and after how long."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from forebay.sdk import (
    AsyncClient,
    BadAnswer,
    Busy,
    ClientClosed,
    GatewayAway,
    GatewayError,
    NotAllowed,
)
from forebay.sdk.errors import error_of
from forebay.sdk.transport import (
    AWAY_PAUSE_S_MAX,
    AWAY_S_MAX,
    Outage,
    Transport,
    TransportOptions,
    pause_s,
    retry_after_s,
)

from .conftest import HighestChance, QuickPace, StillPace, until

if TYPE_CHECKING:
    from .conftest import Place
    from .scripted_server import Exchange, ScriptedServer

HEALTH = {"status": "ok", "version": "1"}
BUSY = {"error": {"code": "queue_full", "message": "full", "param": None}}
JOB = {"id": 1, "status": "queued", "is_new": True}


@pytest.mark.parametrize(
    ("headers", "slept_s"),
    [
        ({"retry-after-ms": "400", "retry-after": "7"}, 0.5),
        ({"retry-after": "4"}, 5.0),
        ({}, 0.5),
        ({"retry-after": "soon", "retry-after-ms": "-1"}, 0.5),
    ],
)
async def test_what_the_gateway_asks_for_is_obeyed_with_jitter(
    place: Place, server: ScriptedServer, headers: dict[str, str], slept_s: float
) -> None:
    client = await place.client(server.url)
    server.plan("GET", "/health", BUSY, 503, headers)
    server.plan("GET", "/health", HEALTH)
    await client.health()
    assert place.pace.slept == [slept_s]  # chance draws the highest here: a quarter more


def test_jitter_never_shortens_what_was_asked_for_and_spreads_what_was_not() -> None:
    chance = random.Random(7)
    asked = [pause_s(1, 8.0, chance) for _ in range(1000)]
    assert all(seconds is not None and 8.0 <= seconds <= 10.0 for seconds in asked)
    assert len(set(asked)) > 900
    own = [pause_s(attempt, None, chance) for attempt in range(1, 12)]
    assert all(seconds is not None and seconds <= 8.0 for seconds in own)


async def test_more_than_two_minutes_is_not_waited_for(
    place: Place, server: ScriptedServer
) -> None:
    client = await place.client(server.url)
    server.plan("GET", "/health", BUSY, 503, {"retry-after": "121"})
    with pytest.raises(Busy) as caught:
        await client.health()
    assert caught.value.retry_after_s == 121.0
    assert place.pace.slept == []


def test_a_date_is_read_against_the_senders_clock() -> None:
    date = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", **date}) == 30.0
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT", **date}) == 0.0
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}) is None


@pytest.mark.parametrize(
    ("status", "said", "attempts"),
    [(503, "false", 1), (500, "true", 3), (429, "", 3), (500, "", 1), (404, "", 1)],
)
async def test_what_the_gateway_says_of_retrying_goes_first(
    place: Place, server: ScriptedServer, status: int, said: str, attempts: int
) -> None:
    client = await place.client(server.url)
    for _ in range(5):
        server.plan("POST", "/jobs", BUSY, status, {"x-should-retry": said})
    with pytest.raises(GatewayError):
        await client.submit("chat", {})
    assert len(server.asked) == attempts


async def test_retries_can_be_turned_off(place: Place, server: ScriptedServer) -> None:
    client = await place.client(server.url, retries=0)
    server.plan("GET", "/health", BUSY, 503)
    with pytest.raises(Busy):
        await client.health()
    assert len(server.asked) == 1


async def test_a_lost_answer_is_asked_for_again_only_where_that_does_no_harm(
    place: Place, server: ScriptedServer
) -> None:
    client = await place.client(server.url)

    async def lose(exchange: Exchange) -> None:
        exchange.cut()

    lost = iter([lose, lose])
    ordinary = server._answer

    async def answer(exchange: Exchange) -> None:
        await next(lost, ordinary)(exchange)

    server._answer = answer  # type: ignore[method-assign] # a fault
    with pytest.raises(GatewayAway) as caught:
        await client.submit("chat", {})
    assert caught.value.sent
    assert len(server.asked) == 1
    server.plan("POST", "/jobs", JOB, 202)
    assert (await client.submit("chat", {}, idempotency_key="k")).id == 1
    assert len(server.asked) == 3


async def test_a_pause_ends_when_the_client_is_closed(server: ScriptedServer) -> None:
    pace = StillPace()
    client = AsyncClient(server.url, pace=pace)
    server.plan("GET", "/health", BUSY, 503, {"retry-after": "60"})
    asking = asyncio.ensure_future(client.health())
    await until(lambda: pace.slept)
    await client.close()
    with pytest.raises(ClientClosed):
        await asking


async def test_a_plain_request_ends_when_the_client_is_closed(server: ScriptedServer) -> None:
    async def hold(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    server.on_prompt = hold
    client = AsyncClient(server.url)
    asking = asyncio.ensure_future(client.prompt("s1", "hello"))
    await server.until(lambda: server.asked)
    await client.close()
    with pytest.raises(ClientClosed):
        await asking
    assert client.prompting.reservations.held("s1") == 0


async def test_what_is_no_gateway_is_said(place: Place, server: ScriptedServer) -> None:
    client = await place.client(server.url)
    server.plan("GET", "/health", b"<html>")
    with pytest.raises(BadAnswer):
        await client.health()
    server.plan("GET", "/health", b"<html>", 403)
    with pytest.raises(NotAllowed) as caught:
        await client.health()
    assert caught.value.code == "unknown"
    server.plan("GET", "/health", b"", 302, {"location": "/elsewhere"})
    with pytest.raises(GatewayError) as moved:
        await client.health()
    assert moved.value.status == 302


def test_a_key_that_no_header_can_hold_is_not_shown() -> None:
    with pytest.raises(ValueError, match="key") as caught:
        AsyncClient(key="secret\n")
    assert "secret" not in str(caught.value)


def test_nothing_of_the_server_is_loaded() -> None:
    look = "import sys, forebay.sdk; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    loaded = ran.stdout.split()
    ours = [name for name in loaded if name.startswith("forebay.")]
    assert {name.split(".")[1] for name in ours} == {"api", "sdk", "sse"}
    assert {"pydantic", "starlette", "uvicorn", "sqlalchemy", "typer"} & set(loaded) == set()


async def test_the_key_is_sent_as_a_bearer(server: ScriptedServer) -> None:
    server.plan("GET", "/health", HEALTH)
    async with AsyncClient(server.url + "/", "secret", pace=QuickPace()) as client:
        await client.health()
    assert server.asked[0].headers["authorization"] == "Bearer secret"


def outage(pace: QuickPace, said: list[object]) -> Outage:
    options = TransportOptions("http://127.0.0.1:9", None, 1.0)
    return Outage(Transport(options, HighestChance(), pace), said.append)


async def test_a_gateway_that_stays_away_is_given_up_after_pauses_that_grow() -> None:
    pace, said = QuickPace(), list[object]()
    away = GatewayAway("no gateway answers at x (refused)", sent=False)

    async def ask() -> None:
        raise away

    with pytest.raises(GatewayAway):
        await outage(pace, said).until_answered(ask)
    assert pace.slept[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert max(pace.slept) == AWAY_PAUSE_S_MAX
    assert AWAY_S_MAX <= pace.monotonic_s() < AWAY_S_MAX + AWAY_PAUSE_S_MAX
    assert said == [away]


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (401, 1), (404, 1), (429, 2), (503, 2)])
async def test_only_what_may_pass_is_asked_again(status: int, asked: int) -> None:
    said: list[object] = []
    refused = error_of(status, {"error": {"code": "c", "message": "no"}})
    answers = [refused, None]

    async def ask() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    with contextlib.nullcontext() if asked == 2 else pytest.raises(GatewayError):
        await outage(QuickPace(), said).until_answered(ask)
    assert len(answers) == 2 - asked
    assert said == ([refused, None] if asked == 2 else [])
