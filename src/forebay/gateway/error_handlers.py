"""What a caller is told when a route that is not hot raises."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.admission import HOT_ROUTES
from forebay.gateway.hot.model_names import nearest
from forebay.gateway.routes.sessions import queue_full
from forebay.relay.problem import Problem
from forebay.sessions.errors import PromptQueueFull, SessionRejected

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.http.authorization import Authorizer

logger = logging.getLogger("forebay.gateway")

CODES_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


class ErrorHandlers:
    """Turns exceptions into answers."""

    def __init__(self, asking: Authorizer) -> None:
        self._asking = asking
        self.handlers: dict[Any, Any] = {
            HttpError: self.refused,
            SessionRejected: self.refused_by_session,
            HTTPException: self.not_there,
            Exception: self.broken,
        }

    async def refused(self, request: Request, error: HttpError) -> Response:
        """Answer a refusal."""
        return self._asking.answer(error, request)

    async def refused_by_session(self, request: Request, error: SessionRejected) -> Response:
        """Answer a session's refusal; that of its cap has a body of its own."""
        if isinstance(error, PromptQueueFull):
            return queue_full(error)
        return self._asking.answer(HttpError.of(error.problem), request)

    async def not_there(self, request: Request, error: HTTPException) -> Response:
        """Answer a request for a route or a method that does not exist."""
        code = CODES_OF_STATUS.get(error.status_code, "invalid_request")
        is_hot = request.url.path.encode() in HOT_ROUTES
        if is_hot:
            code = "method_not_allowed"
        answer = self._asking.answer(HttpError(code, _words(code, request)), request)
        allow = (error.headers or {}).get("Allow") or ("POST" if is_hot else "")
        if allow and code == "method_not_allowed":
            answer.headers["allow"] = allow
        return answer

    async def broken(self, request: Request, error: Exception) -> Response:
        """Answer a bug of ours.

        The traceback is in the log; callers are told nothing that could help an attacker.
        """
        logger.error("a route failed", exc_info=error, extra={"path": request.url.path})
        problem = Problem("internal_error", "an internal error; the log has the details")
        return self._asking.answer(HttpError.of(problem), request)


def _words(code: str, request: Request) -> str:
    path = request.url.path[:128]
    if code == "method_not_allowed":
        return f"{request.method} is not allowed for {path}"
    known = [route.decode() for route in HOT_ROUTES]
    known += [route.path for route in request.app.routes if "{" not in route.path]
    near = nearest(path, known)[:1]
    meant = f"did you mean {near[0]}? See" if near else "see"
    return f"there is nothing at {path}; {meant} /openapi.json"
