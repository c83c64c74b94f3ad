"""One line per request, JSON or for people: ids and timings, no prompt, no key, no user's name.

A line costs 18 µs through `logging`; here the thread that writes standard output also encodes the
batches of the stream of ended requests. Batches that cannot be written fast enough are dropped, and
their lines counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forebay.gateway.hot.access_record import AccessRecord, json_lines
from forebay.gateway.hot.record_maker import RecordMaker
from forebay.gateway.hot.user_hash import UserHashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.gateway.hot.ended import EndedBatch
    from forebay.gateway.logs import Outlet


class AccessLog:
    """Writes ended requests as `encode` has them."""

    def __init__(
        self,
        outlet: Outlet,
        encode: Callable[[list[AccessRecord]], bytes] = json_lines,
        read_user_key: Callable[[], bytes | None] | None = None,
    ) -> None:
        """Without a key that is kept, the hashes of users last as long as this log."""
        self._encode = encode
        self._outlet = outlet
        self._maker = RecordMaker(UserHashes(read_user_key))

    def take(self, batch: EndedBatch) -> None:
        """Have a batch written, or drop it where too many wait for that."""
        lines = partial(self._lines, batch, self._outlet.unreported())
        self._outlet.put(lines, len(batch.requests))

    def stop(self) -> None:
        """Write what is left, within a limit."""
        self._outlet.close()

    def _lines(self, batch: EndedBatch, dropped: int) -> bytes:
        records = self._maker.records(batch)
        records[0].lines_dropped = dropped
        return self._encode(records)
