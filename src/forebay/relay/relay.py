"""The relay: takes calls, posts events, performs what the core decides."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from forebay.core import (
    NO_ROOM,
    Abort,
    Action,
    Audit,
    Audited,
    Describe,
    Expire,
    Inspected,
    NodeRested,
    Observed,
    Reject,
    Revoked,
    Route,
    SlotsChanged,
    Snapshot,
    Wait,
)
from forebay.relay.answer import busy_s
from forebay.relay.exchange import Exchange
from forebay.relay.pools import lease_of_node, node_of, with_pools
from forebay.relay.problem import WORDS, Problem
from forebay.relay.reservation import Reservation
from forebay.relay.retries import RetryBudget
from forebay.relay.stream_gaps import StreamGaps
from forebay.wire.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.clock import Timers
    from forebay.coordination import Coordinator
    from forebay.core import Arrived, Event
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes
    from forebay.relay.attempt import Attempt
    from forebay.relay.call import InferenceCall, Sink
    from forebay.relay.reservation import Holder
    from forebay.settings import QueueSettings, RetrySettings


logger = logging.getLogger("forebay.relay")

EXPIRED_AT_ONCE: Final = 64
"""Told in one turn of the event loop that they have waited too long: about 8 ms."""
ABOUT_THE_MODEL = ("model_not_found", "route_not_supported")
"""Refusals that the field `model` is to blame for."""


class Observer(Protocol):
    """Who counts and logs; called once per exchange, when it ends."""

    __slots__ = ()

    def ended(self, exchange: Exchange, outcome: str) -> None:
        """Take note of an outcome: `served`, `passed_through`, `cancelled` or an error code."""
        ...


class Relay:
    """All exchanges under way."""

    def __init__(
        self,
        nodes: Nodes,
        queue: QueueSettings,
        retry: RetrySettings,
        clock: Timers,
        observer: Observer,
    ) -> None:
        self.nodes = nodes
        self.now_s = clock.monotonic_s
        self._observer = observer
        self.post: Callable[[Event], None] = _nobody
        self.exchanges: dict[str, Exchange] = {}
        self.reservations: dict[str, Reservation] = {}
        self.freed: Callable[[str, str], None] | None = None
        """Whom to tell that capacity may have come free, and of which key and user, if of any;
        set only while somebody waits for it."""
        self.expired: deque[Expire] = deque()
        """Those that have waited too long, and are told so in the next turns of the loop."""
        self._expired_now = 0  # told in this turn
        self._idle: asyncio.Event | None = None  # while someone waits for the end
        self.keepalive = Deadlines(queue.keepalive_seconds, self._ask_about, clock)
        no_byte = late("first_byte_timeout", "the node did not begin to answer in time")
        self.first_bytes = Deadlines(queue.first_byte_seconds, no_byte, clock)
        no_end = late("run_timeout", "the node did not finish its answer in time")
        self.runs = Deadlines(queue.run_seconds, no_end, clock)
        silent = late("chunk_timeout", "the node went silent in the middle of its answer")
        self.gaps = StreamGaps(queue.chunk_gap_seconds, silent, clock)
        self.retries = RetryBudget(retry.budget, retry.attempts)
        self._asked: dict[str, list[Callable[[Describe], None]]] = {}
        self._watchers: list[Callable[[Snapshot], None]] = []
        self._audits: list[Audit] = []  # a list: compiled code would believe that None stays None
        self._performers: dict[type, Callable[..., None]] = {
            Wait: self._wait,
            Reject: self._reject,
            Expire: self._expire,
            Abort: self._abort,
            Describe: self._describe,
            Snapshot: self._show,
            Audit: self._audited,
            SlotsChanged: nodes.slots_changed,
        }
        self.change(queue, retry)

    def connect(self, coordinator: Coordinator) -> None:
        """Use this coordinator; it was made with `perform`."""
        self.post = coordinator.post

    def change(self, queue: QueueSettings, retry: RetrySettings) -> None:
        """Take over new limits; they hold for what starts from now on."""
        self.answer_bytes_max = queue.answer_max_bytes
        self.buffers_streams = retry.stream == "buffer"
        self.retries.ratio, self.retries.attempts_max = retry.budget, retry.attempts
        self.keepalive.change(queue.keepalive_seconds)
        self.first_bytes.change(queue.first_byte_seconds)
        self.runs.change(queue.run_seconds)
        self.gaps.change(queue.chunk_gap_seconds)

    # -- for those who have requests

    def submit(self, call: InferenceCall, sink: Sink) -> Exchange:
        """Take a request; its answer goes to the sink, perhaps before this returns."""
        now_s = self.now_s()
        exchange = Exchange(call, sink, self, now_s)
        self.exchanges[exchange.id] = exchange
        self.retries.note_request(now_s)
        self.post(call.arrival)
        return exchange

    def reserve(self, arrival: Arrived, holder: Holder) -> Reservation:
        """Stand in line below all live requests for a slot; it may be granted before this returns.

        A grant inside this call comes with the reservation, so holders need not wait for it.
        """
        reservation = Reservation(arrival.id, holder, self)
        self.reservations[arrival.id] = reservation
        self.post(arrival)
        return reservation

    def revoke(self, ticket_id: str, code: str) -> bool:
        """End someone's request from outside; False when there is none of that id."""
        if ticket_id not in self.exchanges:
            return False
        self.post(Revoked(ticket_id, code))
        return True

    def inspect(self, ticket_id: str, told: Callable[[Describe], None]) -> None:
        """Ask the core about one ticket; `told` is called unless it has ended."""
        if ticket_id not in self.exchanges:
            return
        self._asked.setdefault(ticket_id, []).append(told)
        self.post(Inspected(ticket_id))

    def forget_inspection(self, ticket_id: str, told: Callable[[Describe], None]) -> None:
        """Want the answer no more; harmless where it has come, or the ticket has ended."""
        waiting = self._asked.get(ticket_id)
        if waiting is not None and told in waiting:
            waiting.remove(told)
            if not waiting:
                del self._asked[ticket_id]

    def observe(self, told: Callable[[Snapshot], None]) -> None:
        """Ask the core for the whole picture; who has asked and waits is not told twice."""
        if told not in self._watchers:
            self._watchers.append(told)
        self.post(Observed())

    def audit(self) -> Audit | None:
        """Return the leases kept for this gateway; None once all is stopped.

        It is answered here, whoever leads; not to be called while an action is performed.
        """
        self._audits.clear()
        self.post(Audited())
        return self._audits[-1] if self._audits else None

    async def finished(self) -> None:
        """Wait until no exchange is under way."""
        self._idle = asyncio.Event()
        if self.exchanges:
            await self._idle.wait()

    def stop(self) -> None:
        """Forget all time limits."""
        for deadlines in (self.keepalive, self.first_bytes, self.runs):
            deadlines.clear()
        self.gaps.clear()

    # -- for exchanges

    def may_wait_for(self, exchange: Exchange, node: Backend | None, failures: int) -> bool:
        """Say whether it may wait for a node that may be gone to answer, whatever the budget.

        It keeps load off nodes in trouble. One that is gone gets none, and when it comes back, it
        gets one request at a time until one has succeeded.
        """
        if node is None or not node.health.is_doubtful or failures >= self.retries.attempts_max:
            return False
        if self.others_have(exchange, (node.name,)):
            return False
        self.retries.total += 1
        return True

    def others_have(self, exchange: Exchange, but: tuple[str, ...]) -> bool:
        """Say whether a node other than those can serve a request."""
        call = exchange.call
        return self.nodes.others_have(exchange.model, call.family.name, but, call.route)

    def rest_node(self, backend: Backend, model: str, retry_after: bytes | None) -> None:
        """Let a node rest that says it is busy, unless another has taken over its name."""
        if self.nodes.get(backend.name) is backend:
            backend.busy(model)
            self.post(NodeRested(backend.slots_of(model), busy_s(retry_after)))

    def forget(self, exchange: Exchange, outcome: str) -> None:
        """Let an exchange go: it has ended, or has no outcome yet and will come again."""
        self.exchanges.pop(exchange.id, None)
        if self._asked:
            self._asked.pop(exchange.id, None)
        if exchange.call.arrival.stream:
            self.keepalive.discard(exchange)
        if not outcome:
            return
        try:
            self._observer.ended(exchange, outcome)
        except Exception:  # whoever counts must not keep a slot from coming back
            logger.exception("counting a request failed")
        if self.freed is not None:
            arrival = exchange.call.arrival
            self.freed(arrival.key, arrival.user)
        if self._idle is not None and not self.exchanges:
            self._idle.set()

    # -- what the core decided

    def perform(self, action: Action) -> None:
        """Do what an action says; the coordinator calls this.

        What goes wrong with one exchange is its own affair: it ends, and whoever posted the event
        that led here, most likely another exchange, does not hear of it.
        """
        try:
            if type(action) is Route:  # nearly always
                exchange = self.exchanges.get(action.id)
                if exchange is None:
                    reservation = self.reservations.get(action.id)
                    if reservation is not None:  # else its owner gave it up, and has said so
                        reservation.route(action)
                    return
                exchange.run(action)
                if self.freed is not None:  # its place in the queue
                    self.freed("", "")
            else:
                self._performers[type(action)](action)
        except Exception:
            logger.exception("an action failed", extra={"action": type(action).__name__})
            self._crashed(action)

    def _crashed(self, action: Action) -> None:
        if isinstance(action, Snapshot | Audit | SlotsChanged):
            return
        exchange = self.exchanges.get(action.id)
        if exchange is not None:
            exchange.is_lost()
        elif (reservation := self.reservations.get(action.id)) is not None:
            reservation.give_up()

    def _wait(self, action: Wait) -> None:
        exchange = self.exchanges.get(action.id)
        if exchange is not None:
            exchange.wait(action)
        elif (reservation := self.reservations.get(action.id)) is not None:
            reservation.reason = action.reason  # else its owner gave it up, and has said so

    def _reject(self, action: Reject) -> None:
        message = action.reasons[0] if action.reasons else WORDS.get(action.code, action.code)
        details: dict[str, object] = {}
        if action.estimate_s is not None:
            details["estimated_wait_seconds"] = round(action.estimate_s, 3)
        param = "model" if action.code in ABOUT_THE_MODEL else None
        problem = Problem(action.code, message, param, action.retry_after_s, details)
        self._refuse(action, problem)

    def _expire(self, action: Expire) -> None:
        """Tell one that has waited too long; of many at once, some in each turn of the loop."""
        if self._expired_now >= EXPIRED_AT_ONCE:
            self.expired.append(action)
            return
        if not self._expired_now:
            asyncio.get_running_loop().call_soon(self._expire_more)
        self._expired_now += 1
        self._tell_expired(action)

    def _expire_more(self) -> None:
        self._expired_now = 0
        for _ in range(min(len(self.expired), EXPIRED_AT_ONCE)):
            self.perform(self.expired.popleft())

    def _tell_expired(self, action: Expire) -> None:
        details: dict[str, object] = {"waited_seconds": round(action.waited_s, 3)}
        message = f"waited {action.waited_s:.1f} s in the queue, which is as long as it may"
        self._refuse(action, Problem(action.code, message, None, action.retry_after_s, details))

    def _refuse(self, action: Reject | Expire, problem: Problem) -> None:
        exchange = self.exchanges.get(action.id)
        if exchange is not None:
            if isinstance(action, Expire):
                exchange.waited_s = action.waited_s
            elif action.rate is not None:  # refused on arrival
                exchange.rate = action.rate
            elif exchange.queued:
                exchange.waited_s += self.now_s() - exchange.queued_since_s
            comes_again = exchange.call.arrival.patient and problem.code in NO_ROOM
            exchange.refuse(problem, comes_again=comes_again)
        elif (reservation := self.reservations.get(action.id)) is not None:
            reservation.refuse(problem)

    def _abort(self, action: Abort) -> None:
        exchange = self.exchanges.get(action.id)
        if exchange is not None:
            exchange.abort(Problem(action.code, WORDS.get(action.code, action.code)))

    def _describe(self, action: Describe) -> None:
        node = action.node and node_of(action.node)
        action = replace(action, node=node, waits_for=node_of(action.waits_for))
        for told in self._asked.pop(action.id, ()):
            told(action)

    def _show(self, action: Snapshot) -> None:
        watchers, self._watchers = self._watchers, []
        action = replace(action, nodes=with_pools(action.nodes))
        for told in watchers:
            told(action)

    def _audited(self, action: Audit) -> None:
        leases = tuple(map(lease_of_node, action.leases))
        self._audits.append(replace(action, leases=leases))

    def _ask_about(self, exchange: Exchange) -> None:
        """Find out where a waiting stream stands, tell it, and ask again in a while."""
        if exchange.flowing or exchange.ended:
            return
        self.keepalive.add(exchange)
        self.inspect(exchange.id, exchange.describe)


def late(code: str, message: str) -> Callable[[Attempt], None]:
    """Return a reaction to a time limit, which ends the request in any case."""

    def end(attempt: Attempt) -> None:
        try:
            attempt.time_out(code, message)
        except Exception:
            logger.exception("ending a request that took too long failed")
            attempt.answer_is_lost()

    return end


def _nobody(_: Event) -> None:
    raise AssertionError("not connected")
