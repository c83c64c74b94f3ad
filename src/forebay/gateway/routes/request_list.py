"""Requests one by one: those that wait or run at this gateway, and the last that ended here.

Who asked for what, since when, and what became of it; never any text. Rows are in order of arrival,
the newest first. Only what a page shows is described by the core, one row per turn of the loop,
because finding the exact position of a row may look at everything that waits; looking for rows
takes more than one turn, too, where many requests are live.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import nlargest
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from forebay.api.queue import ListedRequest, RequestState
from forebay.core import Arrived
from forebay.gateway.routes.queue import estimated_wait, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from forebay.clock import Clock
    from forebay.core import Describe
    from forebay.gateway.hot.ended import EndedBatch, EndedRequest
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay

STATES: Final[tuple[RequestState, ...]] = get_args(RequestState)
ENDED_MAX: Final = 1000
DESCRIBE_S: Final = 1.0
"""How long the leader may take to describe the rows of a page."""
TURN_ROWS: Final = 512
"""Live requests that are looked at before others have their turn: half a millisecond of it."""


Place: TypeAlias = tuple[float, str]
"""Where a row stands in the list."""


def place_of(row: ListedRequest) -> Place:
    """Return where a row stands in the list."""
    return row.arrived, row.id


class KeptRow(msgspec.Struct, frozen=True):
    """An ended request as it survives a restart."""

    key: str
    row: ListedRequest


class RequestFilter(msgspec.Struct, frozen=True):
    """Which requests are listed; None is all."""

    state: RequestState | None = None
    user: str | None = None
    model: str | None = None
    key: str | None = None
    id: str | None = None
    outcome: str | None = None
    before: Place | None = None
    """Only older ones than the row that stands there."""

    def takes(self, arrival: Arrived, model: str, place: Place, outcome: str | None = None) -> bool:
        return (
            (self.outcome is None or outcome == self.outcome)
            and (self.key is None or arrival.key == self.key)
            and (self.user is None or arrival.user == self.user)
            and (self.model is None or model == self.model)
            and (self.id is None or arrival.id == self.id)
            and (self.before is None or place < self.before)
        )


class RequestList:
    """What this gateway knows of single requests."""

    def __init__(
        self, relay: Relay, ended: EndedStream, status_of: Callable[[str], int], clock: Clock
    ) -> None:
        self._relay = relay
        self._stream = ended
        self._status_of = status_of
        # the same for all rows at all times, so that a page begins where the one before it ended
        self._offset_s = clock.utc().timestamp() - clock.monotonic_s()
        self._ended: deque[EndedRequest] = deque(maxlen=ENDED_MAX)
        self._fresh = 0
        self._restored: list[KeptRow] = []  # of an earlier process
        ended.read_by(self._keep)

    def _keep(self, batch: EndedBatch) -> None:
        self._ended.extend(batch.requests)
        self._fresh = min(self._fresh + len(batch.requests), ENDED_MAX)

    # -- what survives a restart

    def take_fresh(self) -> list[str]:
        count, self._fresh = self._fresh, 0
        newest = list(self._ended)[len(self._ended) - count :]
        kept = [self._kept(ended) for ended in newest]
        return [msgspec.json.encode(one).decode() for one in kept if one is not None]

    def restore(self, requests: Sequence[str]) -> None:
        known = {place_of(row) for row in self._ended_rows(RequestFilter())}
        found = {place_of(one.row): one for one in map(_decode_kept, requests)}
        self._restored = [one for place, one in found.items() if place not in known]

    def _kept(self, ended: EndedRequest) -> KeptRow | None:
        arrival = ended.arrival
        if arrival is None:
            return None
        row = self._ended_row(ended, arrival, *self._model_and_place(ended, arrival))
        return KeptRow(arrival.key, row)

    def _model_and_place(self, ended: EndedRequest, arrival: Arrived) -> tuple[str, float]:
        came_s = ended.arrived_s if ended.arrived_s >= 0.0 else ended.ended_s
        return ended.model or arrival.model, came_s + self._offset_s

    async def newest(self, wanted: RequestFilter, count: int) -> list[ListedRequest]:
        """Return that many rows at most; `describe` completes those of waiting ones."""
        rows: list[ListedRequest] = []
        if wanted.state != "ended":
            rows = await self._live_rows(wanted, count)
        if wanted.state in (None, "ended"):
            rows += self._ended_rows(wanted)
        found = {place_of(row): row for row in rows}  # one may have ended since it was found live
        return nlargest(count, found.values(), key=place_of)

    async def _live_rows(self, wanted: RequestFilter, count: int) -> list[ListedRequest]:
        exchanges = self._relay.exchanges
        if wanted.id is not None:
            found = exchanges.get(wanted.id)
            seen = [] if found is None else [found]
        else:
            seen = list(reversed(exchanges.values()))  # the newest come first
        rows: list[ListedRequest] = []
        for number, exchange in enumerate(seen, 1):
            is_live = exchanges.get(exchange.id) is exchange
            if is_live and (row := self._live_row(exchange, wanted)) is not None:
                rows.append(row)
                if len(rows) == count:
                    break
            if number % TURN_ROWS == 0:
                await asyncio.sleep(0)
        return rows

    async def described(
        self, rows: Sequence[ListedRequest], *, is_shared: bool
    ) -> tuple[ListedRequest, ...]:
        """Add to rows of waiting requests what the core knows: position, estimate and reason.

        With a queue that is shared the core may be elsewhere; what it does not say in time stays
        unknown.
        """
        waiting = {row.id for row in rows if row.state == "waiting"}
        known: dict[str, Describe] = {}
        all_known = asyncio.Event()

        def on_result(seen: Describe) -> None:
            known[seen.id] = seen
            if len(known) == len(waiting):
                all_known.set()

        try:
            for ticket_id in waiting:
                self._relay.inspect(ticket_id, on_result)
                await asyncio.sleep(0)
            if is_shared and len(known) < len(waiting):
                async with asyncio.timeout(DESCRIBE_S):
                    await all_known.wait()
        except TimeoutError:
            pass
        finally:
            for ticket_id in waiting - known.keys():
                self._relay.forget_inspection(ticket_id, on_result)
        return tuple(_completed(row, known.get(row.id)) for row in rows)

    def _live_row(self, exchange: Exchange, wanted: RequestFilter) -> ListedRequest | None:
        state: RequestState = "running" if exchange.node else "waiting"
        arrival = exchange.call.arrival
        arrived = exchange.arrived_s + self._offset_s
        if wanted.state not in (None, state) or not wanted.takes(
            arrival, exchange.model, (arrived, exchange.id)
        ):
            return None
        waited_s = exchange.waited_s
        if state == "waiting" and exchange.queued:
            waited_s += self._relay.now_s() - exchange.queued_since_s
        return ListedRequest(
            id=exchange.id,
            state=state,
            model=exchange.model,
            user=arrival.user,
            priority=arrival.priority,
            waited_seconds=round(waited_s, 3),
            node=exchange.node or None,
            attempt=exchange.attempts,
            prompt_tokens=arrival.prompt_tokens,
            output_limit=arrival.output_limit,
            body_bytes=arrival.size_bytes,
            arrived=arrived,
        )

    def _ended_rows(self, wanted: RequestFilter) -> Iterator[ListedRequest]:
        self._stream.flush()
        for ended in self._ended:
            arrival = ended.arrival
            if arrival is None:
                continue
            model, arrived = self._model_and_place(ended, arrival)
            if wanted.takes(arrival, model, (arrived, arrival.id), ended.outcome):
                yield self._ended_row(ended, arrival, model, arrived)
        room = ENDED_MAX - len(self._ended)
        for kept in self._restored[-room:] if room > 0 else ():
            row = kept.row
            who = Arrived(row.id, row.model, user=row.user, key=kept.key)
            if wanted.takes(who, row.model, place_of(row), row.outcome):
                yield row

    def _ended_row(
        self, ended: EndedRequest, arrival: Arrived, model: str, arrived: float
    ) -> ListedRequest:
        waited_s = ended.waited_s
        if ended.queued and not ended.attempt:  # it left the line without ever starting
            waited_s = max(waited_s, ended.ended_s - ended.arrived_s)
        return ListedRequest(
            id=arrival.id,
            state="ended",
            outcome=ended.outcome,
            status=ended.status or self._status_of(ended.outcome),
            model=model,
            user=arrival.user,
            priority=arrival.priority,
            waited_seconds=round(waited_s, 3),
            node=ended.node or None,
            attempt=ended.attempt,
            prompt_tokens=ended.prompt_tokens if ended.prompt_tokens > 0 else arrival.prompt_tokens,
            output_limit=arrival.output_limit,
            body_bytes=arrival.size_bytes,
            arrived=arrived,
        )


_decode_kept = msgspec.json.Decoder(KeptRow).decode


def _completed(row: ListedRequest, seen: Describe | None) -> ListedRequest:
    if seen is None or row.state != "waiting":
        return row
    row = replace(row, waited_seconds=round(seen.waited_s, 3), attempt=seen.attempt)
    if seen.state == "running":
        return replace(row, state="running", node=seen.node)
    return replace(
        row,
        position=seen.position,
        estimated_wait_seconds=estimated_wait(seen),
        reason=reason_of(seen),
        reason_code=seen.reason,
    )
