"""Health, readiness, metrics and capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from forebay import __version__
from forebay.api.fields import OMITTED
from forebay.api.status import Capabilities, Health, Limits, Ready
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
        return json_answer(Health("ok", __version__))

    async def ready(self, request: Request) -> Response:
        """Say whether requests should be sent here."""
        self.authorizer.probe(request)
        self.authorizer.check_keys_known()
        if (problem := self.readiness.problem()) is not None:
            raise HttpError.of(problem)
        fleet = self.membership.shown
        return json_answer(Ready(mode=OMITTED if fleet is None else fleet.picture().mode))

    async def metrics(self, request: Request) -> Response:
        self.authorizer.observer(request)
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(await self.metrics_text(), media_type=media_type)

    async def capabilities(self, request: Request) -> Response:
        """Say what this gateway offers and where its limits are."""
        self.authorizer.anyone(request)
        settings = self.settings.current
        limits = Limits(
            max_pending_prompts_per_session=settings.sessions.max_pending_prompts or None,
            max_sessions=settings.sessions.max_sessions,
            prompt_deadline_ms=settings.sessions.prompt_deadline_ms or None,
            queue_max_size=settings.queue.max_size,
            max_wait_seconds=settings.queue.max_wait_seconds,
            body_max_bytes=settings.server.body_max_bytes,
        )
        return json_answer(
            Capabilities(
                version=__version__,
                limits=limits,
                priorities=tuple(settings.queue.priorities),
                families={one.name: (*one.routes, *one.free_routes) for one in FAMILIES},
                build=BUILD,
                versions={"forebay": __version__, "jsonrpc": "2.0"},
                routes=routes(),
            )
        )

    async def openapi(self, request: Request) -> Response:
        self.authorizer.anyone(request)
        return json_answer(document())
