"""Who is asking for a page that is not hot, and whether they may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.errors.rendering import preferred_language
from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI
from forebay.wire.heads import RequestHead
from forebay.wire.hosts import host_name, is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.errors.rendering import ErrorRenderer
    from forebay.gateway.hot.callers import Caller, Callers
    from forebay.gateway.hot.keys import KeyRing
    from forebay.relay.family import Family

HOP: Final = "x-forebay-hop"
"""The header by which a gateway says that it passes a call on for a client of its own."""
LISTED: Final = "/v1/models"
"""What OpenAI's and Anthropic's clients both ask for."""
FORWARDING: Final = ("forwarded", "x-forwarded", "x-real-ip", "x-client-ip", "cf-", "via", HOP)
"""How the headers begin by which proxies say that they speak for someone else."""


class Authorizer:
    """Authorises what is not inference."""

    def __init__(
        self, callers: Callers, keys: KeyRing, problems: ErrorRenderer, *, public_status: bool
    ) -> None:
        self._callers = callers
        self._keys = keys
        self._problems = problems
        self._public_status = public_status

    def caller(self, request: Request) -> Caller:
        """Return who asks, with a key where keys are needed; raises HttpError."""
        caller = self._read(request)
        if caller.problem is not None:
            raise HttpError.of(caller.problem)
        return caller

    def anyone(self, request: Request) -> Caller:
        """Return who asks; a key is not needed, but the Host must be ours."""
        caller = self._read(request)
        if caller.problem is not None and caller.problem.code == "forbidden_host":
            raise HttpError.of(caller.problem)
        return caller

    def observer(self, request: Request) -> Caller:
        """Return who asks for aggregates; open to all with `server.public_status`."""
        return self.anyone(request) if self._public_status else self.caller(request)

    def admin(self, request: Request) -> Caller:
        """Return an admin: by key, or without any keys someone at this machine."""
        caller = self.caller(request)
        if self._keys:
            if caller.key is None or not caller.key.admin:
                raise HttpError("forbidden", "this needs an admin key")
        elif not _is_at_this_machine(request):
            raise HttpError("forbidden", "without keys, admin routes are for this machine only")
        return caller

    def is_admin(self, request: Request) -> bool:
        """Say whether an admin asks."""
        try:
            self.admin(request)
        except HttpError:
            return False
        return True

    def answer(self, refused: HttpError, request: Request) -> Response:
        """Return an error in the dialect of the route."""
        family = family_of(request.url.path, "anthropic-version" in request.headers)
        language = preferred_language(request.headers.get("accept-language", "").encode("latin-1"))
        rendered = self._problems.render(refused.problem, family, language)
        headers = {name.decode(): value.decode() for name, value in rendered.headers}
        return Response(rendered.body, rendered.status, headers)

    def _read(self, request: Request) -> Caller:
        path = request.url.path.encode()
        head = RequestHead(request.method.encode(), path, list(request.headers.raw))
        caller = self._callers.read(head, request.client.host if request.client else "")
        request.state.body_owner = caller.key_name or caller.address
        return caller


def seen_by(caller: Caller) -> str | None:
    """Return whose jobs and sessions a caller sees; None is everyone's."""
    if caller.key is None:
        return ""
    return None if caller.key.admin else caller.key.name


def family_of(path: str, is_anthropic: bool = False) -> Family:
    """Return the dialect in which errors of a route are told; two have the list of models."""
    if is_anthropic and path.startswith(LISTED):
        return ANTHROPIC
    if path.startswith("/api/"):
        return OLLAMA
    return ANTHROPIC if path.startswith(("/v1/messages", "/v1/v1/messages")) else OPENAI


def _is_at_this_machine(request: Request) -> bool:
    """Say whether the peer is local, asks for a local name, and speaks for nobody else."""
    peer = request.client.host if request.client else ""
    return (
        is_loopback(peer)
        and is_loopback(host_name(request.headers.get("host", "")))
        and not any(name.replace("_", "-").startswith(FORWARDING) for name in request.headers)
        and _is_own_page(request)
    )


def _is_own_page(request: Request) -> bool:
    """Say whether no page of another site is behind this, not even one that CORS allows."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")
