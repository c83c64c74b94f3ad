"""The dashboard: the page, its files, and the pictures that it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forebay.dashboard.files import SECURITY_HEADERS, page_files
from forebay.dashboard.watch import FOLLOWERS_MAX
from forebay.gateway.asking import Refused
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
        self._parts.asking.anyone(request)
        return _answer(page_files()["index.html"], request)

    async def file(self, request: Request) -> Response:
        """Return a file of the page."""
        self._parts.asking.anyone(request)
        file = page_files().get(request.path_params["name"])
        if file is None:
            raise Refused(Problem("not_found", "the page has no file of that name"))
        return _answer(file, request)

    async def events(self, request: Request) -> Response:
        """Tell what is going on, twice a second, as server-sent events."""
        parts = self._parts
        parts.asking.observer(request)
        if parts.watch.followers >= FOLLOWERS_MAX:
            words = f"{FOLLOWERS_MAX} look at this gateway already"
            raise Refused(Problem("too_many_connections", words))
        follower = parts.watch.follow(admin=self._is_admin(request), keys=bool(parts.keys))
        return _Pictures(follower)

    def _is_admin(self, request: Request) -> bool:
        try:
            self._parts.asking.admin(request)
        except Refused:
            return False
        return True


def _answer(file: PageFile, request: Request) -> Response:
    headers = {**SECURITY_HEADERS, "etag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


class _Pictures(StreamingResponse):
    """What a follower is sent; it counts as one from the start to the very end."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(self._events(), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client leaves, or the gateway stops."""
        with self._follower:
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[bytes]:
        while (event := await self._follower.next()) is not None:
            yield event
