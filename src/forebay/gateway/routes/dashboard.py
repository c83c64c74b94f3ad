"""The dashboard: the page, its files, and the pictures that it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forebay.dashboard.files import SECURITY_HEADERS, page_files
from forebay.dashboard.watch import FOLLOWERS_MAX
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.sse import EVENTS, STREAM_HEADERS, only_the_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from forebay.dashboard.files import PageFile
    from forebay.dashboard.watch import Follower
    from forebay.gateway.parts import Parts


class DashboardRoutes:
    """`/`, `/dashboard/...` and `/events`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route("/", self.page),
            Route("/dashboard/{name}", self.file),
            Route("/events", self.events),
        ]

    async def page(self, request: Request) -> Response:
        """Return the page; it holds nothing that anyone may not see."""
        self._parts.authorizer.anyone(request)
        return _answer(page_files()["index.html"], request)

    async def file(self, request: Request) -> Response:
        """Return a file of the page."""
        self._parts.authorizer.anyone(request)
        file = page_files().get(request.path_params["name"])
        if file is None:
            raise HttpError("not_found", "the page has no file of that name")
        return _answer(file, request)

    async def events(self, request: Request) -> Response:
        """Tell what is going on, twice a second, as server-sent events."""
        parts = self._parts
        parts.authorizer.observer(request)
        if (head := only_the_head(request)) is not None:
            return head
        if parts.watch.followers >= FOLLOWERS_MAX:
            words = f"{FOLLOWERS_MAX} look at this gateway already"
            raise HttpError("too_many_connections", words)
        admin = parts.authorizer.is_admin(request)
        follower = parts.watch.follow(admin=admin, keys=bool(parts.keys))
        generation = parts.callers.generation

        def is_as_it_was() -> bool:
            """Say whether the caller may still see this; a key may have been revoked meanwhile."""
            nonlocal generation
            if generation == parts.callers.generation:
                return True
            generation = parts.callers.generation
            return self._may_look(request) and parts.authorizer.is_admin(request) == admin

        return _Pictures(follower, is_as_it_was)

    def _may_look(self, request: Request) -> bool:
        try:
            self._parts.authorizer.observer(request)
        except HttpError:
            return False
        return True


def _answer(file: PageFile, request: Request) -> Response:
    headers = {**SECURITY_HEADERS, "etag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


class _Pictures(StreamingResponse):
    """What a follower is sent; it counts as one from the start to the very end."""

    def __init__(self, follower: Follower, is_as_it_was: Callable[[], bool]) -> None:
        self._follower = follower
        self._is_as_it_was = is_as_it_was
        super().__init__(self._events(), media_type=EVENTS, headers=STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client leaves, or the gateway stops."""
        with self._follower:
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[bytes]:
        while (event := await self._follower.next()) is not None and self._is_as_it_was():
            yield event
