"""The stream of ended requests: one value each, handed to all readers in batches.

A request costs the event loop one value in a list, however many readers there are. Every tenth of
a second, or earlier where it is full, the list goes to each of them: the access log, the memory of
the last ones, whoever counts usage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.gateway.hot.ended import EndedBatch, EndedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.clock import Timers
    from forebay.core import Arrived
    from forebay.relay.exchange import Exchange

TICK_S = 0.1
BATCH_MAX = 4096
"""Requests per batch; the one that fills it has it handed over at once."""

logger = logging.getLogger("forebay.gateway")


class EndedStream:
    """Collects ended requests and hands them over."""

    def __init__(self, clock: Timers, readers: Iterable[Callable[[EndedBatch], None]] = ()) -> None:
        self._clock = clock
        self._armed = False
        self._pending: list[EndedRequest] = []
        self._readers = list(readers)

    def read_by(self, reader: Callable[[EndedBatch], None]) -> None:
        """Hand every batch from now on to a reader, which neither waits nor changes anything."""
        self._readers.append(reader)

    def note(self, exchange: Exchange, route: str, outcome: str, now_s: float) -> None:
        """Take one ended request; no text of it is kept."""
        attempt = exchange.attempt
        self._add(
            EndedRequest(
                route,
                outcome,
                exchange.call.arrival,
                now_s,
                exchange.arrived_s,
                exchange.model,
                exchange.node,
                exchange.status,
                exchange.queued,
                exchange.attempts,
                exchange.waited_s,
                0.0 if attempt is None else attempt.started_s,
                0.0 if attempt is None else attempt.first_byte_s,
                exchange.prompt_tokens,
                exchange.output_tokens,
                exchange.answer_bytes,
            )
        )

    def note_refusal(self, route: str, code: str, arrival: Arrived | None, now_s: float) -> None:
        """Take one request that never reached the queue."""
        self._add(EndedRequest(route, code, arrival, now_s))

    def flush(self) -> None:
        """Hand over what has come."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        now = self._clock.utc()
        batch = EndedBatch(pending, now, now.timestamp() - self._clock.monotonic_s())
        for reader in self._readers:
            try:
                reader(batch)
            except Exception:  # the others get theirs
                logger.exception("reading ended requests failed")

    def _add(self, ended: EndedRequest) -> None:
        self._pending.append(ended)
        if not self._armed:
            self._armed = True
            self._clock.call_at(self._clock.monotonic_s() + TICK_S, self._tick)
        elif len(self._pending) >= BATCH_MAX:
            self.flush()

    def _tick(self) -> None:
        self._armed = False
        self.flush()
