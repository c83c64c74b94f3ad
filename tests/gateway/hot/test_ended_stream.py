"""Requests that have ended: told once a tick, and to all readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.hot.ended_stream import BATCH_MAX, TICK_S, EndedStream
from forebay.testing import FakeClock

from ..conftest import OK
from .test_users_and_keys import A, key, start

if TYPE_CHECKING:
    import pytest

    from forebay.gateway.hot.ended import EndedBatch, EndedRequest

    from ..conftest import Rig

ROUTE = "/v1/chat/completions"


class Reader:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.batches: list[list[EndedRequest]] = []

    def take(self, batch: EndedBatch) -> None:
        self.batches.append(batch.requests)


def readers_of(stream: EndedStream, count: int) -> list[Reader]:
    readers = [Reader() for _ in range(count)]
    for reader in readers:
        stream.read_by(reader.take)
    return readers


def test_every_reader_gets_the_requests_of_a_tick_at_once() -> None:
    clock = FakeClock()
    stream = EndedStream(clock)
    readers = readers_of(stream, 2)
    for code in ("queue_full", "queue_timeout"):
        stream.note_refusal(ROUTE, code, None, clock.monotonic_s())
    assert not readers[0].batches
    clock.advance(TICK_S)
    clock.advance(TICK_S)
    for reader in readers:
        [batch] = reader.batches
        assert [ended.outcome for ended in batch] == ["queue_full", "queue_timeout"]


def test_a_full_batch_is_handed_over_at_once_and_nothing_is_lost() -> None:
    clock = FakeClock()
    stream = EndedStream(clock)
    [reader] = readers_of(stream, 1)
    for _ in range(2 * BATCH_MAX + 5):
        stream.note_refusal(ROUTE, "queue_full", None, clock.monotonic_s())
    assert [len(batch) for batch in reader.batches] == [BATCH_MAX, BATCH_MAX]
    clock.advance(TICK_S)
    assert len(reader.batches[-1]) == 5


def test_a_reader_that_fails_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: EndedBatch) -> None:
        raise ValueError("a bug")

    clock = FakeClock()
    stream = EndedStream(clock)
    stream.read_by(fail)
    [reader] = readers_of(stream, 1)
    stream.note_refusal(ROUTE, "queue_full", None, clock.monotonic_s())
    clock.advance(TICK_S)
    assert len(reader.batches) == 1
    assert "reading ended requests failed" in caplog.text


async def test_requests_are_told_without_an_access_log_and_refusals_say_who_asked(
    rig: Rig,
) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", user="alice")])
    [reader] = readers_of(rig.gateway.parts.ended, 1)
    client, call = await rig.run(node, headers=A)
    await call.answer(OK)
    await client.reply()
    await (await rig.ask(headers=A | {"X-Request-Id": "mine"}, stream="bad")).reply()
    await (await rig.ask(headers={"Authorization": "Bearer wrong"})).reply()
    await rig.gateway.stop(0.0)
    served, bad, stranger = [ended for batch in reader.batches for ended in batch]
    assert (served.outcome, served.node, served.status) == ("served", "n1", 200)
    assert served.arrival is not None
    assert (served.arrival.user, served.arrival.key) == ("alice", "a")
    assert bad.arrival is not None
    assert (bad.outcome, bad.arrival.id, bad.arrival.user) == ("invalid_request", "mine", "alice")
    assert stranger.arrival is not None
    assert (stranger.outcome, stranger.arrival.key) == ("unauthorized", "")
