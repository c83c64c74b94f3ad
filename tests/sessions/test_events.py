"""The ring of events and those who read it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from forebay.sessions.events import (
    BYTES_MAX,
    EVENTS_MAX,
    HEARTBEAT,
    LIFE_STEP,
    EventLog,
    EventReader,
)
from forebay.testing import FakeClock

from .rig import settled

CLOCK = FakeClock()


def log(life: int = 0) -> EventLog:
    return EventLog("e", life, FakeClock())


def numbers(frames: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb"^id: (\d+)$", frames, re.MULTILINE)]


def kinds(frames: bytes) -> list[str]:
    return [kind.decode() for kind in re.findall(rb"^event: (\w+)$", frames, re.MULTILINE)]


def data(frames: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in re.findall(rb"^data: (.+)$", frames, re.MULTILINE)]


async def everything(reader: EventReader) -> bytes:
    """Return the head of the stream and what is there to read now."""
    frames = await reader.next() or b""
    nothing = asyncio.ensure_future(reader.next())
    await settled()
    if nothing.done():
        return frames + (nothing.result() or b"")
    nothing.cancel()
    return frames


async def test_a_reader_without_a_number_gets_all_that_is_held_and_then_what_comes() -> None:
    events = log()
    events.publish("a", "p")
    with events.follow(None) as reader:
        assert numbers(await everything(reader)) == [1]
        waiting = asyncio.ensure_future(reader.next())
        await settled()
        events.publish("b", "p")
        assert numbers(await waiting or b"") == [2]


async def test_a_reader_that_comes_back_gets_what_it_has_not_seen() -> None:
    events = log()
    for _ in range(5):
        events.publish("a", "p")
    with events.follow(3) as reader:
        frames = await everything(reader)
        assert numbers(frames) == [4, 5]
        assert "gap" not in kinds(frames)


async def test_a_reader_that_has_seen_everything_gets_nothing_twice() -> None:
    events = log()
    events.publish("a", "p")
    with events.follow(1) as reader:
        assert numbers(await everything(reader)) == []


async def test_a_gap_is_said_where_the_ring_has_moved_on() -> None:
    events = log()
    for _ in range(EVENTS_MAX + 10):
        events.publish("a", "p")
    await settled()
    with events.follow(3) as reader:
        frames = await everything(reader)
        assert kinds(frames)[0] == "gap"
        assert data(frames)[0] == {
            "type": "gap", "promptId": None, "missedFrom": 4, "missedTo": 10, "eventEpoch": "e",
        }  # fmt: skip
        assert numbers(frames)[0] == 11
    with events.follow(10) as reader:
        assert "gap" not in kinds(await everything(reader))


async def test_a_gap_is_said_after_a_restart_and_old_ends_keep_their_numbers() -> None:
    events = log(life=1)
    events.restore(40, "turn_complete", "p1", {})
    events.restore(60, "turn_error", "p2", {})
    events.publish("turn_error", "p3")
    with events.follow(57) as reader:
        frames = await everything(reader)
        assert kinds(frames) == ["gap", "turn_error", "turn_error"]
        assert numbers(frames) == [60, LIFE_STEP + 1]


async def test_no_gap_is_said_to_one_who_came_after_the_restart() -> None:
    events = log(life=1)
    before = events.last_id
    events.publish("a", "p")
    with events.follow(before) as reader:
        assert kinds(await everything(reader)) == ["a"]


async def test_the_ring_is_bounded_in_bytes_and_always_holds_the_last_event() -> None:
    events = log()
    for _ in range(10):
        events.publish("a", "p", text="x" * (BYTES_MAX // 4))
    await settled()
    assert events._bytes <= BYTES_MAX
    events.publish("a", "p", text="x" * (2 * BYTES_MAX))
    await settled()
    assert [number for number, _ in events._ring] == [11]


async def test_a_slow_reader_is_warned_and_then_dropped() -> None:
    events = log()
    for _ in range(EVENTS_MAX + 1):
        events.publish("a", "p")
    await settled()
    with events.follow(None) as reader:
        await everything(reader)
        for _ in range(EVENTS_MAX * 3 // 4 + 1):
            events.publish("a", "p")
        await settled()
        assert kinds(await reader.next() or b"")[0] == "slow_reader"
        for _ in range(EVENTS_MAX + 1):
            events.publish("a", "p")
        await settled()
        last = await reader.next() or b""
        assert kinds(last) == ["stream_closed"]
        assert data(last)[0]["reason"] == "dropped"
        assert await reader.next() is None
    assert events.readers == 0


async def test_a_reader_that_has_just_come_is_not_called_slow() -> None:
    events = log()
    for _ in range(EVENTS_MAX + 1):
        events.publish("a", "p")
    await settled()
    with events.follow(None) as reader:
        assert "slow_reader" not in kinds(await everything(reader))


async def test_silence_is_broken_by_heartbeats() -> None:
    clock = FakeClock()
    events = EventLog("e", 0, clock)
    with events.follow(None) as reader:
        await reader.next()
        waiting = asyncio.ensure_future(reader.next())
        await settled()
        clock.advance(14.9)
        await settled()
        assert not waiting.done()
        clock.advance(0.1)
        assert await waiting == HEARTBEAT
    assert clock.next_timer_s() is None


async def test_what_comes_behind_a_closed_gate_waits_in_order() -> None:
    events = log()
    with events.follow(None) as reader:
        await reader.next()
        events.hold()
        events.publish("a", "p")
        events.hold()
        events.publish("b", "p")
        events.release()
        assert events._ring == type(events._ring)()
        events.release()
        assert kinds(await reader.next() or b"") == ["a", "b"]


async def test_pieces_of_an_answer_behind_a_gate_are_joined_and_none_is_lost() -> None:
    events = log()
    events.hold()
    events.publish("turn_error", "p")
    for _ in range(5000):
        events.publish("text_delta", "q", text="x")
    events.publish("reasoning_delta", "q", text="hm")
    events.publish("text_delta", "q", text="y")
    assert events._ring == type(events._ring)()
    events.release()
    await settled()
    frames = b"".join(frame for _, frame in events._ring)
    assert kinds(frames) == ["turn_error", "text_delta", "reasoning_delta", "text_delta"]
    assert [event.get("text") for event in data(frames)] == [None, "x" * 5000, "hm", "y"]
    assert numbers(frames) == [1, 2, 3, 4]


async def test_what_was_never_written_is_not_told_at_the_end_either() -> None:
    events = log()
    with events.follow(None) as reader:
        await reader.next()
        events.hold()
        events.publish("turn_complete", "p")
        events.close("stream_closed", reason="shutting_down")
        assert kinds(await reader.next() or b"") == ["stream_closed"]
        assert await reader.next() is None


async def test_a_reader_that_keeps_up_gets_even_what_is_larger_than_the_ring() -> None:
    events = log()
    with events.follow(None) as reader:
        await reader.next()
        waiting = asyncio.ensure_future(reader.next())
        await settled()
        events.publish("turn_complete", "p", text="x" * (2 * BYTES_MAX))
        events.publish("pending_prompt_completed", "p")
        assert kinds(await waiting or b"") == ["turn_complete", "pending_prompt_completed"]
    await settled()
    assert [number for number, _ in events._ring] == [2]


async def test_readers_can_be_sent_away() -> None:
    events = log()
    with events.follow(None) as reader:
        await reader.next()
        events.publish("a", "p")
        events.drop_readers("unauthorized")
        assert kinds(await reader.next() or b"") == ["a"]
        assert data(await reader.next() or b"")[0]["reason"] == "unauthorized"
        assert await reader.next() is None


async def test_closing_lets_readers_read_to_the_end() -> None:
    events = log()
    with events.follow(None) as reader:
        await reader.next()
        events.publish("a", "p")
        events.close("session_closed", reason="idle")
        assert kinds(await reader.next() or b"") == ["a", "session_closed"]
        assert await reader.next() is None


async def test_text_with_line_breaks_stays_one_event() -> None:
    events = log()
    events.publish("text_delta", "p", text="one\n\ndata: two\r\nid: 7\u2028")
    ((_, frame),) = events._ring
    assert frame.count(b"\n") == 4
    assert data(frame)[0]["text"] == "one\n\ndata: two\r\nid: 7\u2028"
