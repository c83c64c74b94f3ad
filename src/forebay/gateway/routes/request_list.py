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
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from forebay.core import Arrived
from forebay.gateway.routes.queue import reason_of, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from forebay.clock import Clock
    from forebay.core import Describe
    from forebay.gateway.hot.ended import EndedBatch, EndedRequest
    from forebay.gateway.hot.ended_stream import EndedStream
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay

State: TypeAlias = Literal["waiting", "running", "ended"]
STATES: Final[tuple[State, ...]] = ("waiting", "running", "ended")
ENDED_MAX: Final = 1000
DESCRIBE_S: Final = 1.0
"""How long the leader may take to describe the rows of a page."""
TURN_ROWS: Final = 512
"""Live requests that are looked at before others have their turn: half a millisecond of it."""


class Estimate(msgspec.Struct, frozen=True):
    """A wait still to come, in seconds."""

    p50: float | None
    p90: float | None


class RequestRow(msgspec.Struct):
    """One request, as it is listed. None is what does not apply, or is not known."""

    id: str
    state: State
    outcome: str | None
    status: int | None
    model: str
    user: str
    priority: str
    position: int | None
    estimated_wait_seconds: Estimate | None
    waited_seconds: float
    node: str | None
    attempt: int
    reason: str | None
    reason_code: str | None
    prompt_tokens: int
    output_limit: int
    body_bytes: int
    arrived: float
    """Unix time."""

    @property
    def place(self) -> Place:
        return self.arrived, self.id


Place: TypeAlias = tuple[float, str]
"""Where a row stands in the list."""


class KeptRow(msgspec.Struct, frozen=True):
    """An ended request as it survives a restart."""

    key: str
    row: RequestRow


class RequestFilter(msgspec.Struct, frozen=True):
    """Which requests are listed; None is all."""

    state: State | None = None
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
        known = {row.place for row in self._ended_rows(RequestFilter())}
        found = {one.row.place: one for one in map(_decode_kept, requests)}
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

    async def newest(self, wanted: RequestFilter, count: int) -> list[RequestRow]:
        """Return that many rows at most; `describe` completes those of waiting ones."""
        rows: list[RequestRow] = []
        if wanted.state != "ended":
            rows = await self._live_rows(wanted, count)
        if wanted.state in (None, "ended"):
            rows += self._ended_rows(wanted)
        found = {row.place: row for row in rows}  # one may have ended since it was found live
        return nlargest(count, found.values(), key=_place)

    async def _live_rows(self, wanted: RequestFilter, count: int) -> list[RequestRow]:
        exchanges = self._relay.exchanges
        if wanted.id is not None:
            found = exchanges.get(wanted.id)
            seen = [] if found is None else [found]
        else:
            seen = list(reversed(exchanges.values()))  # the newest come first
        rows: list[RequestRow] = []
        for number, exchange in enumerate(seen, 1):
            is_live = exchanges.get(exchange.id) is exchange
            if is_live and (row := self._live_row(exchange, wanted)) is not None:
                rows.append(row)
                if len(rows) == count:
                    break
            if number % TURN_ROWS == 0:
                await asyncio.sleep(0)
        return rows

    async def describe(self, rows: Sequence[RequestRow], *, is_shared: bool) -> None:
        """Add to rows of waiting requests what the core knows: position, estimate and reason.

        With a queue that is shared the core may be elsewhere; what it does not say in time stays
        unknown.
        """
        waiting = {row.id: row for row in rows if row.state == "waiting"}
        unknown = set(waiting)
        all_known = asyncio.Event()

        def told(seen: Describe) -> None:
            _complete(waiting[seen.id], seen)
            unknown.discard(seen.id)
            if not unknown:
                all_known.set()

        try:
            for ticket_id in waiting:
                self._relay.inspect(ticket_id, told)
                await asyncio.sleep(0)
            if is_shared and unknown:
                async with asyncio.timeout(DESCRIBE_S):
                    await all_known.wait()
        except TimeoutError:
            pass
        finally:
            for ticket_id in unknown:
                self._relay.forget_inspection(ticket_id, told)

    def _live_row(self, exchange: Exchange, wanted: RequestFilter) -> RequestRow | None:
        state: State = "running" if exchange.node else "waiting"
        arrival = exchange.call.arrival
        arrived = exchange.arrived_s + self._offset_s
        if wanted.state not in (None, state) or not wanted.takes(
            arrival, exchange.model, (arrived, exchange.id)
        ):
            return None
        waited_s = exchange.waited_s
        if state == "waiting" and exchange.queued:
            waited_s += self._relay.now_s() - exchange.queued_since_s
        return RequestRow(
            id=exchange.id,
            state=state,
            outcome=None,
            status=None,
            model=exchange.model,
            user=arrival.user,
            priority=arrival.priority,
            position=None,
            estimated_wait_seconds=None,
            waited_seconds=round(waited_s, 3),
            node=exchange.node or None,
            attempt=exchange.attempts,
            reason=None,
            reason_code=None,
            prompt_tokens=arrival.prompt_tokens,
            output_limit=arrival.output_limit,
            body_bytes=arrival.size_bytes,
            arrived=arrived,
        )

    def _ended_rows(self, wanted: RequestFilter) -> Iterator[RequestRow]:
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
            if wanted.takes(who, row.model, row.place, row.outcome):
                yield row

    def _ended_row(
        self, ended: EndedRequest, arrival: Arrived, model: str, arrived: float
    ) -> RequestRow:
        waited_s = ended.waited_s
        if ended.queued and not ended.attempt:  # it left the line without ever starting
            waited_s = max(waited_s, ended.ended_s - ended.arrived_s)
        return RequestRow(
            id=arrival.id,
            state="ended",
            outcome=ended.outcome,
            status=ended.status or self._status_of(ended.outcome),
            model=model,
            user=arrival.user,
            priority=arrival.priority,
            position=None,
            estimated_wait_seconds=None,
            waited_seconds=round(waited_s, 3),
            node=ended.node or None,
            attempt=ended.attempt,
            reason=None,
            reason_code=None,
            prompt_tokens=ended.prompt_tokens if ended.prompt_tokens > 0 else arrival.prompt_tokens,
            output_limit=arrival.output_limit,
            body_bytes=arrival.size_bytes,
            arrived=arrived,
        )


_decode_kept = msgspec.json.Decoder(KeptRow).decode


def _place(row: RequestRow) -> Place:
    return row.place


def _complete(row: RequestRow, seen: Describe) -> None:
    row.waited_seconds = round(seen.waited_s, 3)
    row.attempt = seen.attempt
    if seen.state == "waiting":
        row.position = seen.position
        row.estimated_wait_seconds = Estimate(rounded(seen.p50_s), rounded(seen.p90_s))
        row.reason, row.reason_code = reason_of(seen), seen.reason
    elif seen.state == "running":
        row.state, row.node = "running", seen.node
