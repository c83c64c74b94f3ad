"""One line per request, JSON or for people: ids and timings, no prompt, no key, no user's name.

A line costs 18 µs through `logging`; here a thread of its own encodes and writes the batches of
the stream of ended requests, so that a full disk or a stopped terminal never holds up the event
loop. Batches that cannot be written fast enough are dropped, and their lines counted.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Protocol

from forebay.gateway.hot.access_record import AccessRecord, json_lines
from forebay.gateway.hot.record_maker import RecordMaker
from forebay.gateway.hot.user_hash import UserHashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.gateway.hot.ended import EndedBatch

BATCHES_MAX = 64


class LogStream(Protocol):
    """Where lines are written."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


class AccessLog:
    """Writes ended requests as `encode` has them."""

    def __init__(
        self,
        stream: LogStream,
        encode: Callable[[list[AccessRecord]], bytes] = json_lines,
        read_user_key: Callable[[], bytes | None] | None = None,
    ) -> None:
        """Without a key that is kept, the hashes of users last as long as this log."""
        self._encode = encode
        self._stream = stream
        self.dropped = 0
        self._maker = RecordMaker(UserHashes(read_user_key))
        self._batches: queue.Queue[EndedBatch | None] = queue.Queue(BATCHES_MAX)
        self._writer = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._writer.start()

    def take(self, batch: EndedBatch) -> None:
        """Have a batch written, or drop it where too many wait for that."""
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            self.dropped += len(batch.requests)

    def stop(self) -> None:
        """Write what is left and end the thread; waits at most a second for a stuck stream."""
        if self._writer.is_alive():
            try:
                self._batches.put(None, timeout=1.0)
            except queue.Full:
                return
            self._writer.join(1.0)

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._stream.write(self._encode(self._maker.records(batch)))
                self._stream.flush()
            except (OSError, ValueError):  # closed, or no space: requests matter more than lines
                self.dropped += len(batch.requests)
