"""The events of a session: numbered, in a bounded ring, with any number of readers.

Numbers only ever rise, over restarts, too: each life of a session (one process that holds it)
numbers from `life * LIFE_STEP` on. So a reader that comes back with the number it saw last can be
told whether it missed something, whatever happened in between, and an old number is never
mistaken for a new one.

The ring holds EVENTS_MAX events and BYTES_MAX bytes, always the last event, and whatever came in
this iteration of the loop, so that a reader that keeps up misses nothing however large. Readers
have no buffers of their own, only a place in the ring: one that stops reading costs nothing, is
warned when it has fallen behind by most of the ring, and is dropped when the ring has passed it.

The outcome of a turn must not be published before it is in the ledger: else a crash in between
would give the prompt a second one. `hold` closes the gate before such an event, `release` opens it;
what comes meanwhile is buffered in order, deltas of one answer joined into one event. What is still
buffered when the log is closed was never written, and is not published: the next life gives that
prompt its end.

Cost: O(1) an event and a reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from forebay.clock import Timers

EVENTS_MAX = 2048
BYTES_MAX = 262_144
READERS_MAX = 16
LIFE_STEP = 1_000_000_000
HEARTBEAT_S = 15.0
"""Below the minute after which many proxies cut a silent connection."""
JOINED = ("text_delta", "reasoning_delta")
"""Events that can be joined into one."""
HEARTBEAT = b": heartbeat\n\n"
HEAD = b"retry: 1000\n\n"
"""How soon a browser's EventSource should come back, in milliseconds."""


def frame(kind: str, prompt_id: str | None, fields: dict[str, Any], event_id: int = 0) -> bytes:
    """Return an event as it is sent; one without a number goes to one reader only.

    >>> frame("text_delta", "p", {"text": "hi"}, 3)
    b'id: 3\\nevent: text_delta\\ndata: {"type":"text_delta","promptId":"p","text":"hi"}\\n\\n'
    """
    data = msgspec.json.encode({"type": kind, "promptId": prompt_id, **fields})
    number = b"id: %d\n" % event_id if event_id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (number, kind.encode(), data)


class GatedEvent:
    """An event that is buffered until the gate opens."""

    __slots__ = ("event_id", "fields", "kind", "prompt_id", "texts")

    def __init__(
        self, event_id: int, kind: str, prompt_id: str | None, fields: dict[str, Any]
    ) -> None:
        self.event_id = event_id
        self.kind = kind
        self.prompt_id = prompt_id
        self.fields = fields
        self.texts = [fields["text"]] if kind in JOINED else []

    def can_join(self, kind: str, prompt_id: str | None) -> bool:
        return kind in JOINED and (self.kind, self.prompt_id) == (kind, prompt_id)

    def frame(self) -> bytes:
        fields = {**self.fields, "text": "".join(self.texts)} if self.texts else self.fields
        return frame(self.kind, self.prompt_id, fields, self.event_id)


class EventLog:
    """The events of one session."""

    def __init__(self, epoch: str, life: int, clock: Timers) -> None:
        self.epoch = epoch
        """Differs from process to process."""
        self.last_id = life * LIFE_STEP
        """The number given last; perhaps of an event that is still buffered."""
        self._first_of_life = self.last_id + 1
        self._clock = clock
        self._ring: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._published = 0  # events ever put into the ring
        self._lost_id = 0  # the newest that has left the ring
        self._trimming = False
        self._held: deque[GatedEvent] = deque()
        self._gates = 0
        self._readers: set[EventReader] = set()
        self.closed = False

    # -- writing

    def publish(self, kind: str, prompt_id: str | None, **fields: Any) -> int:
        """Publish an event, now or when the gate opens; return its number."""
        if self._gates and self._held and self._held[-1].can_join(kind, prompt_id):
            self._held[-1].texts.append(fields["text"])
            return self.last_id
        self.last_id += 1
        held = GatedEvent(self.last_id, kind, prompt_id, fields)
        if self._gates:
            self._held.append(held)
        else:
            self._append(self.last_id, held.frame())
            self._wake()
        return self.last_id

    def restore(self, event_id: int, kind: str, prompt_id: str, fields: dict[str, Any]) -> None:
        """Put back an event of an earlier life, which keeps its number; oldest first."""
        self._append(event_id, frame(kind, prompt_id, fields, event_id))
        self._wake()

    def hold(self) -> None:
        """Close the gate: buffer what comes next until `release`."""
        self._gates += 1

    def release(self) -> None:
        """Open the gate, once there was a `release` for every `hold`."""
        self._gates -= 1
        if not self._gates:
            self._publish_held()

    def open_gate(self) -> None:
        """Publish what is buffered: it does not matter any more whether it is written."""
        self._publish_held()

    def close(self, kind: str, **fields: Any) -> None:
        """Publish one last event and end every reader after it."""
        self._held.clear()
        self.last_id += 1
        self._append(self.last_id, frame(kind, None, fields, self.last_id))
        self.closed = True
        self._wake()

    def drop_readers(self, reason: str) -> None:
        """End the present readers; others may come."""
        for reader in tuple(self._readers):
            reader.drop(reason)

    # -- reading

    @property
    def readers(self) -> int:
        return len(self._readers)

    def follow(self, after: int | None) -> EventReader:
        """Return a reader of the events after a number; of the whole ring for None.

        It counts as a reader at once, until its context is left.
        """
        reader = EventReader(self, after, self._clock)
        self._readers.add(reader)
        return reader

    def start_of(self, after: int | None) -> tuple[int, int, int]:
        """Return how many events to give a reader, and the range of numbers that it missed."""
        if after is None:
            return len(self._ring), 0, 0
        count = 0
        for event_id, _ in reversed(self._ring):
            if event_id <= after:
                break
            count += 1
        missed_to = self._lost_id
        if after < self._first_of_life:  # of an earlier life, whose events are gone but for ends
            missed_to = max(missed_to, self._first_of_life - 1)
        return count, after + 1, missed_to if missed_to > after else 0

    def _append(self, event_id: int, data: bytes) -> None:
        self._ring.append((event_id, data))
        self._bytes += len(data)
        self._published += 1

    def _publish_held(self) -> None:
        while self._held:
            held = self._held.popleft()
            self._append(held.event_id, held.frame())
        self._wake()

    def _wake(self) -> None:
        """Wake the readers, and trim the ring only after they have read."""
        for reader in self._readers:
            reader.wake()
        if not self._trimming and self._is_too_large():
            self._trimming = True
            asyncio.get_running_loop().call_soon(self._trim)

    def _is_too_large(self) -> bool:
        return len(self._ring) > EVENTS_MAX or self._bytes > BYTES_MAX

    def _trim(self) -> None:
        self._trimming = False
        while len(self._ring) > 1 and self._is_too_large():
            self._lost_id, lost = self._ring.popleft()
            self._bytes -= len(lost)


class EventReader:
    """The place of one client in the ring."""

    def __init__(self, log: EventLog, after: int | None, clock: Timers) -> None:
        self._log = log
        self._clock = clock
        count, missed_from, missed_to = log.start_of(after)
        self._place = log._published - count  # counted as there
        self._caught_up = False  # with what was in the ring when it came
        self._warned = False
        self._woken = asyncio.Event()
        self._first = [HEAD]
        if missed_to:
            missed = {"missedFrom": missed_from, "missedTo": missed_to, "eventEpoch": log.epoch}
            self._first.append(frame("gap", None, missed))
        self._dropped = ""

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._log._readers.discard(self)

    def drop(self, reason: str) -> None:
        """End it after the events that it has not read yet."""
        self._dropped = reason
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    async def next(self) -> bytes | None:
        """Return new events, or a heartbeat after HEARTBEAT_S without any; None at the end.

        Cancelling it loses nothing.
        """
        if self._first:
            first, self._first = b"".join(self._first), []
            return first
        while True:
            frames = self._take()
            if frames:
                return frames
            if self._log.closed or self._place < 0:
                return None
            if self._dropped:
                return self._last(self._dropped)
            self._woken.clear()
            if not await self._wait():
                return HEARTBEAT

    def _take(self) -> bytes:
        log = self._log
        if self._place < 0:
            return b""
        behind = log._published - self._place
        if behind > len(log._ring):  # the ring has passed it
            return self._last("dropped")
        if not behind:
            return b""
        frames = [log._ring[-number][1] for number in range(behind, 0, -1)]
        self._place = log._published
        is_slow = bool(log._lost_id) and behind * 4 > len(log._ring) * 3
        if is_slow and self._caught_up and not self._warned:
            self._warned = True
            frames.insert(0, frame("slow_reader", None, {"behind": behind}))
        self._caught_up = True
        return b"".join(frames)

    def _last(self, reason: str) -> bytes:
        self._place = -1
        return frame("stream_closed", None, {"reason": reason})

    async def _wait(self) -> bool:
        """Wait for an event; False when a heartbeat is due first."""
        due = asyncio.Event()

        def beat() -> None:
            due.set()
            self._woken.set()

        timer = self._clock.call_at(self._clock.monotonic_s() + HEARTBEAT_S, beat)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        return not due.is_set()
