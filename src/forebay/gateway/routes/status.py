"""Looking in: `/v1/queue`, one ticket, health, readiness, metrics, capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from forebay import __version__
from forebay.core import NO_ROOM
from forebay.dashboard.fleet import draw_fleet
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.admission import FAMILIES
from forebay.gateway.openapi.document import routes

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.coordination import FleetPicture
    from forebay.core import Describe
    from forebay.dashboard.lookout import Look
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.parts import Parts
    from forebay.relay.exchange import Exchange

ID_LENGTH_MAX = 128
BODY_BYTES_MAX = 65_536
"""Of questions that have no body."""
REASONS = {
    "busy": "every slot that could serve it is taken",
    "turn": "a slot is free, but kept for a model swap or for those before it",
    "offline": "no node that serves its model is up",
    "loading": "the node that serves its model is loading it",
    "starting": "a node that may serve it has not answered yet",
    None: "it is running",
}
"""Why a request waits, in words."""


def json_answer(value: object, status: int = 200) -> Response:
    """Return an answer in JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class StatusRoutes:
    """The routes that only look."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/capabilities", self.capabilities),
            Route("/v1/queue", self.queue),
            Route("/v1/queue/{ticket_id:path}", self.ticket),
            Route("/v1/queue/{ticket_id:path}", self.cancel, methods=["DELETE"]),
        ]

    async def health(self, request: Request) -> Response:
        """Say that the gateway is alive; touches nothing else."""
        self._parts.authorizer.anyone(request)
        return json_answer({"status": "ok", "version": __version__})

    async def ready(self, request: Request) -> Response:
        """Say whether requests should be sent here."""
        self._parts.authorizer.anyone(request)
        problem = self._parts.why_not_ready()
        if problem is not None:
            raise HttpError.of(problem)
        fleet = self._parts.membership.fleet
        if fleet is None:
            return json_answer({"status": "ready"})
        return json_answer({"status": "ready", "mode": fleet.picture().mode})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        self._parts.authorizer.observer(request)
        parts = self._parts
        look = await parts.lookout.taken()
        assert parts.holdings is not None
        held = parts.holdings.count()
        text = parts.metrics.text(look, parts.relay.retries_total, held, self._fleet())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def capabilities(self, request: Request) -> Response:
        """Say what this gateway offers and where its limits are."""
        self._parts.authorizer.anyone(request)
        settings = self._parts.settings
        return json_answer(
            {
                "version": __version__,
                "families": {
                    family.name: [*family.routes, *family.free_routes] for family in FAMILIES
                },
                "priorities": list(settings.queue.priorities),
                "versions": {"forebay": __version__, "jsonrpc": "2.0"},
                "routes": routes(),
                "limits": {
                    "maxPendingPromptsPerSession": settings.sessions.max_pending_prompts or None,
                    "maxSessions": settings.sessions.max_sessions,
                    "promptDeadlineMs": settings.sessions.prompt_deadline_ms or None,
                    "queueMaxSize": settings.queue.max_size,
                    "maxWaitSeconds": settings.queue.max_wait_seconds,
                    "bodyMaxBytes": settings.server.body_max_bytes,
                },
            }
        )

    async def queue(self, request: Request) -> Response:
        """Return the state of the whole queue, in aggregates only."""
        self._parts.authorizer.observer(request)
        look = await self._parts.lookout.taken()
        seen = look.snapshot
        return json_answer(
            {
                "waiting": seen.waiting,
                "processing": seen.running,
                "max_size": seen.max_size,
                "average_wait_seconds": round(seen.average_wait_s or 0.0, 3),
                "average_service_seconds": round(seen.average_service_s or 0.0, 3),
                "by_priority": seen.by_priority,
                "processing_jobs": seen.running_jobs,
                "rejected_total": seen.totals.refused(NO_ROOM),
                "timeouts_total": seen.totals.expired,
                "served_total": seen.totals.served,
                **self._shared(look, request),
            }
        )

    def _fleet(self) -> FleetPicture | None:
        return (
            None if self._parts.membership.fleet is None else self._parts.membership.fleet.picture()
        )

    def _shared(self, look: Look, request: Request) -> dict[str, object]:
        """Show the gateways that share the queue; to an admin, where each of them is."""
        if (known := self._fleet()) is None:
            return {}
        drawn = draw_fleet(known, age_s=look.age_s)
        replicas = [msgspec.structs.asdict(replica) for replica in drawn.replicas]
        if self._parts.authorizer.is_admin(request):
            addresses = {replica.name: replica.address for replica in known.replicas}
            replicas = [{**one, "address": addresses[one["name"]]} for one in replicas]
        return {
            "fleet": {
                "mode": drawn.mode,
                "epoch": drawn.epoch,
                "me": drawn.me,
                "counted_seconds_ago": drawn.counted_seconds_ago,
                "replicas": replicas,
            }
        }

    async def ticket(self, request: Request) -> Response:
        """Say where one request stands, and why it waits."""
        if not request.path_params["ticket_id"]:  # a slash at the end
            return await self.queue(request)
        exchange = await self._find(request)
        if isinstance(exchange, Response):
            return exchange
        seen = await self._parts.describe(exchange.call.id)
        if seen is None:
            raise _unknown()
        return json_answer(_shown(exchange, seen, self._parts.relay.now_s()))

    async def cancel(self, request: Request) -> Response:
        """End one request, waiting or running."""
        exchange = await self._find(request)
        if isinstance(exchange, Response):
            return exchange
        ticket_id = exchange.call.id
        self._parts.relay.revoke(ticket_id, "cancelled")
        if exchange.call.patient:  # a session's prompt, which must stay ended after a crash, too
            await self._parts.sessions.flush(ticket_id)
        return json_answer({"id": ticket_id, "state": "cancelled"})

    async def _find(self, request: Request) -> Exchange | Response:
        """Return a request that this caller may see: its own user's, or any for an admin.

        Of one that another gateway has, return what that says.
        """
        caller = self._parts.authorizer.caller(request)
        ticket_id = request.path_params["ticket_id"]
        exchange = self._parts.relay.exchanges.get(ticket_id)
        if exchange is None and len(ticket_id) <= ID_LENGTH_MAX:
            name = await self._parts.peers.of_request(ticket_id, request)
            if name is not None:
                return await self._parts.peers.pass_on(request, name, BODY_BYTES_MAX)
        key = caller.key
        if exchange is None or (
            key is not None and not key.admin and not _is_own(exchange, caller, self._parts)
        ):
            raise _unknown()
        return exchange


def _is_own(exchange: Exchange, caller: Caller, parts: Parts) -> bool:
    """Say whether a request is the caller's own user's."""
    return exchange.call.user == parts.callers.user_of(caller, None)


def _unknown() -> HttpError:
    return HttpError("not_found", "no request of that id is waiting or running")


def _shown(exchange: Exchange, seen: Describe, now_s: float) -> dict[str, object]:
    timeline = exchange.timeline or [(exchange.arrived_s, "arrived")]
    if exchange.timeline is None and exchange.node:
        timeline.append((exchange.started_s, f"started on {exchange.node}"))
    return {
        "id": exchange.call.id,
        "state": seen.state,
        "position": seen.position,
        "estimated_wait_seconds": {"p50": _rounded(seen.p50_s), "p90": _rounded(seen.p90_s)},
        "waited_seconds": round(seen.waited_s, 3),
        "reason": REASONS[seen.reason],
        "reason_code": seen.reason,
        "attempt": seen.attempt,
        "timeline": [
            {"seconds_ago": round(now_s - at_s, 3), "event": event} for at_s, event in timeline
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
