"""Health, readiness, metrics and capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from forebay import __version__
from forebay.build import BUILD
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.admission import FAMILIES
from forebay.gateway.openapi.document import document, routes
from forebay.gateway.routes.json_answer import json_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from forebay.gateway.fleet.membership import Membership
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.live_settings import LiveSettings
    from forebay.gateway.readiness import Readiness


@dataclass(frozen=True)
class StatusRoutes:
    """`/health`, `/ready`, `/metrics`, `/capabilities` and `/openapi.json`."""

    authorizer: Authorizer
    readiness: Readiness
    membership: Membership
    settings: LiveSettings
    metrics_text: Callable[[], Awaitable[bytes]]

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/capabilities", self.capabilities),
            Route("/openapi.json", self.openapi),
        ]

    async def health(self, request: Request) -> Response:
        """Say that the gateway is alive; touches nothing else."""
        self.authorizer.probe(request)
        return json_answer({"status": "ok", "version": __version__})

    async def ready(self, request: Request) -> Response:
        """Say whether requests should be sent here."""
        self.authorizer.probe(request)
        self.authorizer.check_keys_known()
        if (problem := self.readiness.problem()) is not None:
            raise HttpError.of(problem)
        fleet = self.membership.shown
        if fleet is None:
            return json_answer({"status": "ready"})
        return json_answer({"status": "ready", "mode": fleet.picture().mode})

    async def metrics(self, request: Request) -> Response:
        self.authorizer.observer(request)
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(await self.metrics_text(), media_type=media_type)

    async def capabilities(self, request: Request) -> Response:
        """Say what this gateway offers and where its limits are."""
        self.authorizer.anyone(request)
        settings = self.settings.current
        return json_answer(
            {
                "version": __version__,
                "build": BUILD,
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

    async def openapi(self, request: Request) -> Response:
        self.authorizer.anyone(request)
        return json_answer(document())
