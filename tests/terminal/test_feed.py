"""Reading the events: what breaks is mended, what is refused is told in words."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from forebay.terminal.feed import PAUSE_S, PAUSE_S_MAX, Feed, GaveUp

from .scripted_gateway import LIMIT_S, frame, hello, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.api.events import DashboardSnapshot, Hello

    from .scripted_gateway import ScriptedGateway


class Steps:
    """Time that passes as soon as somebody waits for it; every wait is kept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic_s(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Notes:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()

    def take_hello(self, hello: Hello) -> None:
        self._note(f"hello {hello.epoch}")

    def take_snapshot(self, snapshot: DashboardSnapshot) -> None:
        self._note(f"waiting {snapshot.queue.waiting}")

    def lose(self, reason: str) -> None:
        self._note(f"lost: {reason}")

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self._news.set()

    async def until(self, reached: Callable[[list[str]], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not reached(self.heard):
                self._news.clear()
                await self._news.wait()


class HighestChance(random.Random):
    """Chance that always draws the highest number."""

    def uniform(self, a: float, b: float) -> float:
        return b


@asynccontextmanager
async def following(
    url: str, *, silence_s: float = LIMIT_S, pace: Steps | None = None
) -> AsyncIterator[Notes]:
    feed, notes = Feed(url, None, HighestChance(), pace or Steps(), silence_s), Notes()
    task = asyncio.create_task(feed.run(notes))
    try:
        yield notes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await feed.close()


async def gave_up(url: str, key: str | None = None) -> GaveUp:
    feed = Feed(url, key, HighestChance(), Steps())
    try:
        with pytest.raises(GaveUp) as caught:
            await feed.run(Notes())
        with pytest.raises(GaveUp) as also:
            await feed.first()
        assert str(also.value) == str(caught.value)
    finally:
        await feed.close()
    return caught.value


async def test_pictures_are_handed_on_as_they_come(gateway: ScriptedGateway) -> None:
    async with following(gateway.url) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        gateway.send(**snapshot(queue={"waiting": 12}))
        await notes.until(lambda heard: len(heard) == 3)
        assert notes.heard == ["hello 9f2c61d0", "waiting 11", "waiting 12"]


async def test_events_of_a_later_version_are_left_out(gateway: ScriptedGateway) -> None:
    async with following(gateway.url) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        gateway.send_raw(b": a comment\n\n" + frame("weather", {"sun": True}))
        gateway.send()
        await notes.until(lambda heard: len(heard) == 3)
        assert notes.heard[-1] == "waiting 11"


async def test_a_connection_that_breaks_is_made_again(gateway: ScriptedGateway) -> None:
    async with following(gateway.url) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        gateway.hello = hello(epoch="second")
        gateway.hang_up()
        await notes.until(lambda heard: "hello second" in heard)
        assert [what.partition(":")[0] for what in notes.heard[2:4]] == ["lost", "hello second"]


async def test_a_gateway_that_is_away_is_asked_again_after_growing_pauses(
    gateway: ScriptedGateway,
) -> None:
    pace = Steps()
    async with following(gateway.url, pace=pace) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        await gateway.stop()
        await notes.until(lambda heard: len(heard) > 10)
        assert pace.slept[:4] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, PAUSE_S_MAX * 0.8]
        assert max(pace.slept) == PAUSE_S_MAX
        await gateway.start()
        await notes.until(lambda heard: heard[-1] == "waiting 11")
        before = len(pace.slept)
        gateway.hang_up()
        await notes.until(lambda heard: heard[-1] == "waiting 11" and len(pace.slept) > before)
        assert pace.slept[before] == PAUSE_S  # it had come back: the pauses begin anew


async def test_silence_ends_a_connection(gateway: ScriptedGateway) -> None:
    async with following(gateway.url, silence_s=0.2) as notes:
        await notes.until(lambda heard: len(heard) > 2)
        assert "timed out" in notes.heard[2]


@pytest.mark.parametrize(
    "rubbish",
    [b"event: snapshot\ndata: {nonsense\n\n", b"event: snapshot\ndata: [1]\n\n",
     b'event: snapshot\ndata: {"nodes": 7}\n\n', b"event: snapshot\ndata: \xff\xfe\n\n"],
)  # fmt: skip
async def test_an_event_that_cannot_be_read_begins_a_new_connection(
    gateway: ScriptedGateway, rubbish: bytes
) -> None:
    async with following(gateway.url) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        gateway.send_raw(rubbish)
        await notes.until(lambda heard: len(heard) >= 5)
        assert notes.heard[2].startswith("lost: ")
        assert notes.heard[3:5] == ["hello 9f2c61d0", "waiting 11"]


async def test_a_key_is_sent_as_a_bearer(gateway: ScriptedGateway) -> None:
    feed = Feed(gateway.url, "team-secret", HighestChance())
    _, snapshot, data = await feed.first()
    await feed.close()
    assert snapshot.queue.waiting == 11
    assert '"waiting": 11' in data
    assert "authorization: bearer team-secret" in gateway.headers[0].lower()


def refused(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message, "param": None}}


async def test_without_a_key_it_says_how_to_name_one(gateway: ScriptedGateway) -> None:
    gateway.refusal = (401, refused("missing_key", "a key is needed"))
    problem = await gave_up(gateway.url)
    assert str(problem).endswith("Name a key with --key-env VAR.")
    assert not problem.is_away


async def test_a_key_that_is_not_taken_is_told_from_none(gateway: ScriptedGateway) -> None:
    gateway.refusal = (403, refused("forbidden", "not for you"))
    problem = await gave_up(gateway.url, "wrong")
    assert "not for you" in str(problem)
    assert str(problem).endswith("Name another key with --key-env VAR.")


async def test_a_gateway_without_a_live_view_is_told_as_such(gateway: ScriptedGateway) -> None:
    gateway.refusal = (404, refused("not_found", "there is no such route"))
    problem = await gave_up(gateway.url)
    assert "has no /events: it is older than this command" in str(problem)
    assert "--url" in str(problem)


async def test_what_is_no_gateway_is_told_as_such(gateway: ScriptedGateway) -> None:
    gateway.content_type = "text/html"
    problem = await gave_up(gateway.url)
    assert "is not a Forebay gateway" in str(problem)


async def test_another_version_is_told_as_such(gateway: ScriptedGateway) -> None:
    gateway.hello = hello(version=2)
    problem = await gave_up(gateway.url)
    assert "install the same forebay on both sides" in str(problem)


async def test_where_nothing_answers_it_says_how_to_start_one(gateway: ScriptedGateway) -> None:
    await gateway.stop()
    problem = await gave_up(gateway.url)
    assert problem.is_away
    assert "forebay serve" in str(problem)


async def test_once_it_was_live_even_a_refusal_is_waited_out(gateway: ScriptedGateway) -> None:
    async with following(gateway.url) as notes:
        await notes.until(lambda heard: len(heard) == 2)
        gateway.refusal = (503, refused("too_many_connections", "100 look already"))
        gateway.hang_up()
        await notes.until(lambda heard: any("100 look already" in what for what in heard))
        gateway.refusal = None
        await notes.until(lambda heard: heard[-1] == "waiting 11")
