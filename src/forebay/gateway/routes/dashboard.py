"""The dashboard: the page, its files, and the stream of snapshots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import Route

from forebay.dashboard.feed import SUBSCRIBERS_MAX
from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.sse import EventStreamResponse, head_response
from forebay.gateway.routes.json_answer import json_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from forebay.dashboard.feed import DashboardFeed
    from forebay.gateway.http.authorization import Authorizer

HOURS_MAX: Final = 24
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

SECURITY_HEADERS: Final = {
    # The page has its code and its looks from us alone, talks to us alone, and cannot make markup
    # out of text: names of models and texts of errors come from outside.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for anew each time, sent anew only where it has changed
}


class PageFile(Struct, frozen=True):
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files by name; `index.html` is the page itself."""
    found = {}
    for file in resources.files("forebay.dashboard").joinpath("static").iterdir():
        ending = "." + file.name.rpartition(".")[2]
        if ending in MEDIA_TYPES:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found[file.name] = PageFile(content, MEDIA_TYPES[ending], etag)
    return found


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
            Route("/events/history", self.history),
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
            words = f"{SUBSCRIBERS_MAX} viewers are connected to this gateway already"
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

    async def history(self, request: Request) -> Response:
        """Return up to 24 hours by the minute: aggregates, for whoever may see `/events`."""
        self.authorizer.observer(request)
        given = request.query_params.get("hours", str(HOURS_MAX))
        if not (given.isascii() and given.isdigit() and 1 <= int(given[:4]) <= HOURS_MAX):
            raise invalid(f"hours is a whole number from 1 to {HOURS_MAX}", "hours")
        return json_answer(self.feed.day(int(given)))

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
