"""The Starlette application: every route that is not inference, its errors and its middleware."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.errors.rendering import family_of, preferred_language
from forebay.gateway.hot.admission import HOT_ROUTES
from forebay.gateway.hot.callers import EXPOSED, plain_id
from forebay.gateway.hot.model_names import nearest
from forebay.gateway.hot.paths import PATH_BYTES_MAX, spellings
from forebay.gateway.routes.acp import AcpRoutes
from forebay.gateway.routes.admin import AdminRoutes, GuardRoutes
from forebay.gateway.routes.dashboard import DashboardRoutes
from forebay.gateway.routes.files import BatchRoutes, FileRoutes
from forebay.gateway.routes.jobs import JobRoutes
from forebay.gateway.routes.keys import KeyRoutes
from forebay.gateway.routes.model_queries import ModelQueryRoutes
from forebay.gateway.routes.models import ModelRoutes
from forebay.gateway.routes.queue import QueueRoutes
from forebay.gateway.routes.requests import RequestRoutes
from forebay.gateway.routes.sessions import SessionRoutes, queue_full
from forebay.gateway.routes.status import StatusRoutes
from forebay.gateway.routes.usage import UsageRoutes
from forebay.gateway.sessions.service import SessionService
from forebay.gateway.workers.leader_proxy import LeaderProxy
from forebay.relay.problem import Problem
from forebay.sessions.errors import PromptQueueFull, SessionRejected

if TYPE_CHECKING:
    from starlette.routing import BaseRoute, Router
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from forebay.gateway.errors.rendering import ErrorRenderer
    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.parts import Parts
    from forebay.wire.hosts import HostGuard

logger = logging.getLogger("forebay.gateway")

REQUEST_ID = b"x-request-id"
CODES_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


def make_routed(parts: Parts) -> Starlette:
    """Return every route with the parts that it uses."""
    handlers = ErrorHandlers(parts.error_renderer)
    app = Starlette(routes=_routes(parts), exception_handlers=handlers.by_type)
    app.router.redirect_slashes = False
    app.router.default = AlternativeSpellings(app.router)
    return app


def make_application(parts: Parts, routed: Starlette | None = None) -> ASGIApp:
    """Return the application: the routes, and what concerns all of them."""
    app: ASGIApp = routed or make_routed(parts)
    handlers = ErrorHandlers(parts.error_renderer)
    if parts.seat is not None:
        app = LeaderProxy(
            app=app,
            store=parts.seat.store,
            peers=parts.peers,
            authorizer=parts.authorizer,
            reader=parts.reader,
            body_bytes_max=parts.settings.server.body_max_bytes,
            render=handlers.response,
        )
    return RequestIdMiddleware(CorsMiddleware(app, parts.hosts, handlers), parts.admission)


def _routes(parts: Parts) -> list[BaseRoute]:
    authorizer, reader, readiness = parts.authorizer, parts.reader, parts.readiness
    session_service = SessionService(parts.sessions, parts.models, readiness, parts.callers)

    async def metrics_text() -> bytes:
        look, fleet = await parts.queue_observer.observation(), parts.membership.shown
        picture = None if fleet is None else fleet.picture()
        others = None if parts.workers is None else await parts.workers.figures.gathered()
        held = parts.holdings.count()
        return parts.metrics.text(look, parts.relay.retries.total, held, picture, others)

    groups = (
        StatusRoutes(authorizer, readiness, parts.membership, parts.live, metrics_text),
        RequestRoutes(authorizer, parts.requests, parts.membership, parts.peers),
        QueueRoutes(
            authorizer, parts.relay, parts.queue_observer, parts.membership, parts.peers,
            parts.sessions,
        ),
        ModelRoutes(authorizer, parts.nodes, parts.models),
        ModelQueryRoutes(
            authorizer, reader, readiness, parts.live, parts.admission, parts.models, parts.nodes,
            parts.accounting, parts.relay,
        ),
        AdminRoutes(
            authorizer, reader, parts.nodes, parts.node_commands, parts.queue_observer, parts.live
        ),
        KeyRoutes(authorizer, reader, parts.records, parts.keys, parts.live),
        UsageRoutes(authorizer, parts.records),
        GuardRoutes(authorizer, reader, readiness, parts.guarded, parts.nodes),
        JobRoutes(authorizer, reader, readiness, parts.jobs, parts.models),
        FileRoutes(authorizer, reader, readiness, parts.jobs),
        BatchRoutes(authorizer, reader, parts.jobs),
        SessionRoutes(authorizer, reader, parts.peers, session_service),
        AcpRoutes(authorizer, reader, parts.peers, session_service),
        DashboardRoutes(authorizer, parts.dashboard_feed),
    )  # fmt: skip
    return [route for group in groups for route in group.routes()]


class ErrorHandlers:
    """Turns exceptions into responses."""

    def __init__(self, renderer: ErrorRenderer) -> None:
        self._renderer = renderer
        self.by_type: dict[Any, Any] = {
            HttpError: self.http_error,
            SessionRejected: self.session_error,
            HTTPException: self.no_route,
            Exception: self.internal_error,
        }

    def response(self, problem: Problem, request: Request) -> Response:
        """Return an error in the form of the route's API family."""
        family = family_of(request.url.path, "anthropic-version" in request.headers)
        language = preferred_language(request.headers.get("accept-language", "").encode("latin-1"))
        rendered = self._renderer.render(problem, family, language)
        headers = {name.decode(): value.decode() for name, value in rendered.headers}
        return Response(rendered.body, rendered.status, headers)

    async def http_error(self, request: Request, error: HttpError) -> Response:
        return self.response(error.problem, request)

    async def session_error(self, request: Request, error: SessionRejected) -> Response:
        """Answer what a session rejects; a full queue has a body of its own."""
        if isinstance(error, PromptQueueFull):
            return queue_full(error)
        return self.response(error.problem, request)

    async def no_route(self, request: Request, error: HTTPException) -> Response:
        """Answer a request for a path or a method that does not exist."""
        code = CODES_OF_STATUS.get(error.status_code, "invalid_request")
        is_hot = request.url.path.encode() in HOT_ROUTES
        if is_hot:
            code = "method_not_allowed"
        answer = self.response(Problem(code, _words(code, request)), request)
        allow = (error.headers or {}).get("Allow") or ("POST" if is_hot else "")
        if allow and code == "method_not_allowed":
            answer.headers["allow"] = allow
        return answer

    async def internal_error(self, request: Request, error: Exception) -> Response:
        """Log a bug with its traceback; callers get nothing that could help an attacker."""
        logger.error("internal error in a route", exc_info=error, extra={"path": request.url.path})
        problem = Problem("internal_error", "an internal error; the log has the details")
        return self.response(problem, request)


def _words(code: str, request: Request) -> str:
    path = request.url.path[:128]
    if code == "method_not_allowed":
        return f"{request.method} is not allowed for {path}"
    known = [route.decode() for route in HOT_ROUTES]
    known += [route.path for route in request.app.routes if "{" not in route.path]
    near = nearest(path, known)[:1]
    meant = f"did you mean {near[0]}? See" if near else "see"
    return f"there is nothing at {path}; {meant} /openapi.json"


class RequestIdMiddleware:
    """Sets `X-Request-Id` on errors: the caller's own id if it is plain, else a fresh one."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                headers = [pair for pair in message.get("headers", ()) if pair[0] != REQUEST_ID]
                given = plain_id(dict(reversed(scope["headers"])).get(REQUEST_ID))
                request_id = given or self._admission.unique_id("")
                message["headers"] = [*headers, (REQUEST_ID, request_id.encode())]
            await send(message)

        await self._app(scope, receive, marked)


class AlternativeSpellings:
    """Routes an alternative spelling of a path to the known path."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._not_found = router.default

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].encode("utf-8", "surrogateescape")
        for spelling in spellings(path) if len(path) <= PATH_BYTES_MAX else ():
            meant = {**scope, "path": spelling.decode("utf-8", "replace"), "raw_path": spelling}
            if spelling != path and any(
                route.matches(meant)[0] is not Match.NONE for route in self._router.routes
            ):
                await self._router(meant, receive, send)
                return
        await self._not_found(scope, receive, send)


class CorsMiddleware:
    """Lets pages of the origins in `server.cors_origins` read responses; off by default."""

    def __init__(self, app: ASGIApp, hosts: HostGuard, handlers: ErrorHandlers) -> None:
        self._app = app
        self._hosts = hosts
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        origin = self._hosts.cors_origin(headers.get(b"origin"))
        is_preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
        if origin is None and is_preflight and b"origin" in headers:
            await self._refusal(Request(scope), headers[b"origin"])(scope, receive, send)
            return
        if origin is None:
            await self._app(scope, receive, send)
            return
        if is_preflight:
            asked = headers.get(b"access-control-request-headers", b"authorization, content-type")
            answer = Response(status_code=204)
            answer.raw_headers += [
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-methods", b"GET, POST, DELETE"),
                (b"access-control-allow-headers", asked),
                (b"access-control-max-age", b"600"),
                (b"vary", b"Origin"),
            ]
            await answer(scope, receive, send)
            return

        await self._app(scope, receive, self._marked(send, origin))

    def _refusal(self, request: Request, origin: bytes) -> Response:
        """Say why a page may not call.

        Without the header that allows it the browser's console says what is missing; this is what
        its list of requests shows.
        """
        shown = "".join(c for c in origin[:128].decode("latin-1") if c.isprintable())
        words = f"pages of {shown} may not call; server.cors_origins lists those that may"
        return self._handlers.response(Problem("forbidden_host", words, "origin"), request)

    def _marked(self, send: Send, origin: bytes) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"access-control-allow-origin", origin),
                    (b"access-control-expose-headers", EXPOSED),
                    (b"vary", b"Origin"),
                ]
            await send(message)

        return marked
