"""`/v1/queue`: the queue in aggregates, and single requests in it by their id."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.responses import Response
from starlette.routing import Route

from forebay.api.fields import OMITTED
from forebay.api.queue import (
    BetterNode,
    CachedPrompt,
    Cancelled,
    EstimatedWait,
    Fleet,
    Moment,
    Queue,
    Ticket,
)
from forebay.core import NO_ROOM
from forebay.dashboard.fleet import fleet_snapshot
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.routes.json_answer import json_answer

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.core import Describe
    from forebay.dashboard.observer import QueueObservation, QueueObserver
    from forebay.gateway.fleet.membership import Membership
    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.sessions.host import SessionHost
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay

logger = logging.getLogger("forebay.gateway")

ID_LENGTH_MAX = 128
DESCRIBE_S = 1.0
"""How long the leader may take to describe a request."""
REASONS = {
    "busy": "every slot that could serve it is taken",
    "turn": "a slot is free, but reserved for a model swap or for earlier requests",
    "offline": "no node that serves its model is up",
    "loading": "the node that serves its model is loading it",
    "starting": "a node that may serve it has not answered yet",
    "rate": "its key is over its rate",
    "better_node": "a slot is free, but a busy node is expected to end it sooner",
    "key": "it waits until another request of its key ends (max_running)",
    None: "it is running",
}
"""Why a request waits, in words; `reason_of` names the better node."""


@dataclass(frozen=True)
class QueueRoutes:
    """The whole queue, one request of it, and how to cancel that."""

    authorizer: Authorizer
    relay: Relay
    observer: QueueObserver
    membership: Membership
    peers: Peers
    sessions: SessionHost

    def routes(self) -> list[Route]:
        return [
            Route("/v1/queue", self.queue),
            Route("/v1/queue/{ticket_id:path}", self.ticket),
            Route("/v1/queue/{ticket_id:path}", self.cancel, methods=["DELETE"]),
        ]

    async def queue(self, request: Request) -> Response:
        """Return the state of the whole queue, in aggregates only."""
        self.authorizer.observer(request)
        look = await self.observer.observation()
        seen = look.snapshot
        return json_answer(
            Queue(
                waiting=seen.waiting,
                processing=seen.running,
                max_size=seen.max_size,
                average_wait_seconds=round(seen.average_wait_s or 0.0, 3),
                average_service_seconds=round(seen.average_service_s or 0.0, 3),
                by_priority=seen.by_priority,
                processing_jobs=seen.running_jobs,
                rejected_total=seen.totals.refused(NO_ROOM),
                timeouts_total=seen.totals.expired,
                served_total=seen.totals.served,
                fleet=self._fleet(look, request),
            )
        )

    def _fleet(self, look: QueueObservation, request: Request) -> Fleet | None:
        """Show the gateways that share the queue; to an admin, with their addresses."""
        fleet = self.membership.shown
        if fleet is None:
            return cast("None", OMITTED)
        is_admin = self.authorizer.is_admin(request)
        drawn = fleet_snapshot(fleet.picture(), age_s=look.age_s, with_addresses=is_admin)
        return Fleet(*(getattr(drawn, name) for name in Fleet.__struct_fields__))

    async def ticket(self, request: Request) -> Response:
        """Show one request: its position, its estimate, and why it waits."""
        if not request.path_params["ticket_id"]:  # a slash at the end
            return await self.queue(request)
        exchange = await self._find(request)
        if isinstance(exchange, Response):
            return exchange
        seen = await self._describe(exchange.id)
        if seen is None:
            raise _not_found()
        return json_answer(_shown(exchange, seen, self.relay.now_s()))

    async def cancel(self, request: Request) -> Response:
        exchange = await self._find(request)
        if isinstance(exchange, Response):
            return exchange
        ticket_id = exchange.id
        key = self.authorizer.caller(request).key
        if key is not None and key.admin:
            extra = {"id": ticket_id, "key": key.name}
            logger.info("request cancelled by an admin", extra=extra)
        self.relay.revoke(ticket_id, "cancelled")
        if exchange.call.arrival.patient:  # a session's prompt must stay ended after a crash, too
            await self.sessions.flush(ticket_id)
        return json_answer(Cancelled(ticket_id))

    async def _find(self, request: Request) -> Exchange | Response:
        """Return a request that this caller may see: its own user's, or any for an admin.

        For a request that another gateway has, return the response of that gateway.
        """
        caller = self.authorizer.caller(request)
        ticket_id = request.path_params["ticket_id"]
        exchange = self.relay.exchanges.get(ticket_id)
        if exchange is None and len(ticket_id) <= ID_LENGTH_MAX:
            name = await self.peers.of_request(ticket_id, request)
            if name is not None:
                return await self.peers.forward(request, name)
        key = caller.key
        if exchange is None or (
            key is not None and not key.admin and not self._is_of(exchange, caller)
        ):
            raise _not_found()
        return exchange

    def _is_of(self, exchange: Exchange, caller: Caller) -> bool:
        """Say whether a request is its caller's user's; not of a key that is gone: of a namesake.

        Users are known by name, and so is a key that names none.
        """
        arrival = exchange.call.arrival
        is_there = self.authorizer.is_in_force(arrival.key)
        return is_there and arrival.user == self.authorizer.user_of(caller)

    async def _describe(self, ticket_id: str) -> Describe | None:
        """Return what the core knows of a ticket; None when it has ended.

        A core in this process has answered before `inspect` returns; a leader elsewhere takes a
        moment. Raises HttpError where it takes too long.
        """
        future: asyncio.Future[Describe] = asyncio.get_running_loop().create_future()

        def on_result(seen: Describe) -> None:
            if not future.done():
                future.set_result(seen)

        self.relay.inspect(ticket_id, on_result)
        if self.membership.fleet is None or future.done():
            return future.result() if future.done() else None
        try:
            done, _ = await asyncio.wait({future}, timeout=DESCRIBE_S)
        finally:
            self.relay.forget_inspection(ticket_id, on_result)
        if not done and ticket_id in self.relay.exchanges:
            words = "the leader did not report the state of this request"
            raise HttpError("replica_unavailable", words)
        return future.result() if done else None


def _not_found() -> HttpError:
    return HttpError("not_found", "no request with that id is waiting or running")


def _shown(exchange: Exchange, seen: Describe, now_s: float) -> Ticket:
    timeline = exchange.timeline or [(exchange.arrived_s, "arrived")]
    attempt = exchange.attempt
    if exchange.timeline is None and attempt is not None:
        timeline.append((attempt.started_s, f"started on {exchange.node}"))
    return Ticket(
        id=exchange.id,
        state=seen.state,
        position=seen.position,
        estimated_wait_seconds=estimated_wait(seen),
        waited_seconds=round(seen.waited_s, 3),
        reason=reason_of(seen),
        reason_code=seen.reason,
        better_node=_better_node(seen),
        cache=_cache(seen),
        attempt=seen.attempt,
        timeline=tuple(
            Moment(seconds_ago=round(now_s - at_s, 3), event=event) for at_s, event in timeline
        ),
    )


def estimated_wait(seen: Describe) -> EstimatedWait:
    """Return the wait that is still to come."""
    return EstimatedWait(rounded(seen.p50_s), rounded(seen.p90_s))


def reason_of(seen: Describe) -> str:
    """Return in words why a request waits."""
    if not seen.waits_for:
        return REASONS[seen.reason]
    match seen.better_by:
        case "prompt":
            why = _cached_there(seen)
        case "memory":
            why = "its model is in memory there"
        case _:
            why = f"it is {round(seen.times_as_fast, 1):g} x as fast as what is free"
    return f"waits for {seen.waits_for}: {why}"


def _better_node(seen: Describe) -> BetterNode | None:
    """Show the busy node that a request waits for, though another is free; None without one."""
    if not seen.waits_for:
        return None
    return BetterNode(
        node=seen.waits_for,
        why=seen.better_by or "",
        seconds_gained=round(seen.gain_s, 3),
        seconds_left=round(seen.hold_s_left, 3),
        times_as_fast=round(seen.times_as_fast, 2),
        cached_tokens=seen.cached_tokens,
        prompt_tokens=seen.prompt_tokens,
    )


def _cached_there(seen: Describe) -> str:
    return f"{seen.cached_tokens:,} of {seen.prompt_tokens:,} prompt tokens are cached there"


def _cache(seen: Describe) -> CachedPrompt | None:
    """Say what of a prompt a node has computed before; None where nothing is known."""
    if not seen.cached_tokens:
        return None
    node = seen.waits_for or seen.node
    message = f"{'waits for' if seen.waits_for else 'runs on'} {node}: {_cached_there(seen)}"
    return CachedPrompt(node, seen.cached_tokens, seen.prompt_tokens, message)


def rounded(seconds: float | None) -> float | None:
    """Return seconds as they are shown."""
    return None if seconds is None else round(seconds, 3)
