"""One line per request, JSON or for people: ids and timings, no prompt, no key, no user's name.

A line costs 18 µs through `logging`; here it is a tuple in a list, and every tenth of a second
the list is encoded and written by a thread of its own, so that a full disk or a stopped terminal
never holds up the event loop. Lines that cannot be written fast enough are dropped and counted.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Protocol

from forebay.gateway.hot.access_record import AccessRecord, LogBatch, RecordFiller, json_lines
from forebay.gateway.hot.user_hash import UserHashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.core import Arrived
    from forebay.relay.exchange import Exchange

FLUSH_S = 0.1
LINES_MAX = 4096
"""Lines per batch; more in a tenth of a second means dropping some."""
BATCHES_MAX = 64


class LogStream(Protocol):
    """Where lines are written."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class AccessLog:
    """Collects lines and writes them in batches, as `encode` has them."""

    def __init__(
        self,
        stream: LogStream,
        clock: Timers,
        encode: Callable[[list[AccessRecord]], bytes] = json_lines,
        read_user_key: Callable[[], bytes | None] | None = None,
    ) -> None:
        """Without a key that is kept, the hashes of users last as long as this log."""
        self._encode = encode
        self._stream = stream
        self._clock = clock
        self._armed = False
        self.dropped = 0
        self._filler = RecordFiller(UserHashes(read_user_key))
        self._batches: queue.Queue[LogBatch | None] = queue.Queue(BATCHES_MAX)
        self._pending: list[AccessRecord] = []
        self._arrivals: list[Arrived | None] = []
        self._writer = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._writer.start()

    def note(self, exchange: Exchange, route: str, outcome: str, now_s: float) -> None:
        """Take one ended request; only numbers and our own words are kept."""
        started_s = exchange.started_s
        first_s = exchange.first_byte_s
        self._add(
            AccessRecord(
                "",
                route,
                outcome,
                exchange.id,
                exchange.model,
                exchange.node,
                exchange.status,
                exchange.queued,
                exchange.attempt,
                int(exchange.waited_s * 1000),
                int((first_s - started_s) * 1000) if first_s else 0,
                int((now_s - started_s) * 1000) if started_s else 0,
                max(0, exchange.prompt_tokens),
                max(0, exchange.output_tokens),
                exchange.answer_bytes,
                exchange.arrived_s,
            ),
            exchange.call.arrival,
        )

    def note_refusal(self, route: str, code: str) -> None:
        """Take one request that never reached the queue."""
        self._add(AccessRecord("", route, code), None)

    def stop(self) -> None:
        """Write what is left and end the thread; waits at most a second for a stuck stream."""
        self._flush()
        if self._writer.is_alive():
            try:
                self._batches.put(None, timeout=1.0)
            except queue.Full:
                return
            self._writer.join(1.0)

    def _add(self, line: AccessRecord, arrival: Arrived | None) -> None:
        if len(self._pending) >= LINES_MAX:
            self.dropped += 1
            return
        self._pending.append(line)
        self._arrivals.append(arrival)
        if not self._armed:
            self._armed = True
            self._clock.call_at(self._clock.monotonic_s() + FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._armed = False
        batch = LogBatch(self._pending, self._arrivals)
        self._pending, self._arrivals = [], []
        if not batch.records:
            return
        now = self._clock.utc()
        batch.time = now.isoformat(timespec="milliseconds")
        batch.clock_offset_s = now.timestamp() - self._clock.monotonic_s()
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            self.dropped += len(batch.records)

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            lines = batch.records
            try:
                self._filler.fill(batch)
                self._stream.write(self._encode(lines))
                self._stream.flush()
            except (OSError, ValueError):  # closed, or no space: requests matter more than lines
                self.dropped += len(lines)
