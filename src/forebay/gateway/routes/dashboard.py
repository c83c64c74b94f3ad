"""The dashboard: the page, its files, and the stream of pictures that it draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from forebay.dashboard.feed import SUBSCRIBERS_MAX
from forebay.dashboard.files import SECURITY_HEADERS, page_files
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.sse import EventStreamResponse, head_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from forebay.dashboard.feed import DashboardFeed
    from forebay.dashboard.files import PageFile
    from forebay.gateway.http.authorization import Authorizer


@dataclass(frozen=True)
class DashboardRoutes:
    """`/`, `/dashboard/...` and `/events`."""

    authorizer: Authorizer
    feed: DashboardFeed

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/dashboard/{name}", self.file),
            Route("/events", self.events),
        ]

    async def page(self, request: Request) -> Response:
        """Return the page, which holds no data."""
        self.authorizer.anyone(request)
        return _answer(page_files()["index.html"], request)

    async def file(self, request: Request) -> Response:
        self.authorizer.anyone(request)
        file = page_files().get(request.path_params["name"])
        if file is None:
            raise HttpError("not_found", "the page has no file of that name")
        return _answer(file, request)

    async def events(self, request: Request) -> Response:
        """Stream a snapshot of the gateway twice a second."""
        self.authorizer.observer(request)
        if (head := head_response(request)) is not None:
            return head
        if self.feed.subscribers >= SUBSCRIBERS_MAX:
            words = f"{SUBSCRIBERS_MAX} look at this gateway already"
            raise HttpError("too_many_connections", words)
        admin = self.authorizer.is_admin(request)
        subscriber = self.feed.subscribe(admin=admin, keys=self.authorizer.needs_keys)
        generation = self.authorizer.keys_generation

        async def snapshots() -> AsyncIterator[bytes]:
            nonlocal generation
            while (event := await subscriber.next()) is not None:
                if generation != self.authorizer.keys_generation:  # a key may have been revoked
                    generation = self.authorizer.keys_generation
                    if not self._sees_the_same(request, admin):
                        return
                yield event

        return EventStreamResponse(snapshots(), subscriber)

    def _sees_the_same(self, request: Request, admin: bool) -> bool:
        try:
            self.authorizer.observer(request)
        except HttpError:
            return False
        return self.authorizer.is_admin(request) == admin


def _answer(file: PageFile, request: Request) -> Response:
    headers = {**SECURITY_HEADERS, "etag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
