"""Exceptions of the Starlette routes as error responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.errors.rendering import family_of, preferred_language
from forebay.gateway.hot.admission import HOT_ROUTES
from forebay.gateway.hot.model_names import nearest
from forebay.gateway.routes.sessions import queue_full
from forebay.relay.problem import Problem
from forebay.sessions.errors import PromptQueueFull, SessionRejected

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.errors.rendering import ErrorRenderer

logger = logging.getLogger("forebay.gateway")

CODES_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


class ErrorHandlers:
    """Turns exceptions into responses."""

    def __init__(self, renderer: ErrorRenderer) -> None:
        self._renderer = renderer
        self.by_type: dict[Any, Any] = {
            HttpError: self.http_error,
            SessionRejected: self.refused_by_session,
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

    async def refused_by_session(self, request: Request, error: SessionRejected) -> Response:
        """Answer a session's refusal; that of its cap has a body of its own."""
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
