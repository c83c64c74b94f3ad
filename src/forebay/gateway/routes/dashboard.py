"""The dashboard: the page, its files, and the stream of snapshots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.sse import EventStreamResponse, head_response
from forebay.gateway.routes.json_answer import json_answer
from forebay.shares import PAGE_STREAMS, Places

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


KEPT: Final = "public, max-age=31536000, immutable"
"""For a file at an address that no other content will ever have: browsers need not ask again."""


class PageFile(Struct, frozen=True):
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


class PageFiles(Struct, frozen=True):
    """The page and what it loads, all of one edition."""

    edition: str
    """A digest of all of them: stands in the addresses, so that what is kept cannot be outdated."""
    by_name: dict[str, PageFile]
    """`index.html` is the page itself."""


@cache
def page_files() -> PageFiles:
    """Read them, once; the page names the edition in the addresses of what it loads."""
    found = {}
    for file in resources.files("forebay.dashboard").joinpath("static").iterdir():
        ending = "." + file.name.rpartition(".")[2]
        if ending in MEDIA_TYPES:
            found[file.name] = file.read_bytes()
    edition = _digest(b"".join(name.encode() + found[name] for name in sorted(found)))
    # Scripts import each other by relative addresses, which keeps them in the same edition.
    addresses = b'"/dashboard/', f'"/dashboard/{edition}/'.encode()
    found["index.html"] = found["index.html"].replace(*addresses)
    return PageFiles(edition, {name: _page_file(name, found[name]) for name in found})


def _page_file(name: str, content: bytes) -> PageFile:
    media_type = MEDIA_TYPES["." + name.rpartition(".")[2]]
    return PageFile(content, media_type, f'"{_digest(content)}"')


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class DashboardRoutes:
    """`/`, `/dashboard/...` and `/events`."""

    authorizer: Authorizer
    feed: DashboardFeed
    _streams: Places = field(default_factory=lambda: Places(PAGE_STREAMS))

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/dashboard/{name}", self.file),
            Route("/dashboard/{edition}/{name}", self.file),
            Route("/events", self.events),
            Route("/events/history", self.history),
        ]

    async def page(self, request: Request) -> Response:
        """Return the page, which holds no data."""
        self.authorizer.anyone(request)
        return _answer(page_files().by_name["index.html"], request)

    async def file(self, request: Request) -> Response:
        """Return a file; of another edition (this gateway was upgraded), ours, not to be kept."""
        self.authorizer.anyone(request)
        ours = page_files()
        file = ours.by_name.get(request.path_params["name"])
        if file is None:
            raise HttpError("not_found", "the page has no file of that name")
        return _answer(file, request, kept=request.path_params.get("edition") == ours.edition)

    async def events(self, request: Request) -> Response:
        """Stream a snapshot of the gateway twice a second."""
        caller = self.authorizer.observer(request)
        if (head := head_response(request)) is not None:
            return head
        place = self.authorizer.place(caller.owner_id, self._streams)
        admin = self.authorizer.is_admin(request)
        subscriber = self.feed.subscribe(admin=admin, keys=self.authorizer.needs_keys)
        may_go_on = self.authorizer.watch(lambda: self._sees_the_same(request, admin))

        async def snapshots() -> AsyncIterator[bytes]:
            while (event := await subscriber.next()) is not None and may_go_on():
                yield event

        return EventStreamResponse(snapshots(), place, subscriber)

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


def _answer(file: PageFile, request: Request, *, kept: bool = False) -> Response:
    headers = {**SECURITY_HEADERS, "etag": file.etag}
    if kept:
        headers["cache-control"] = KEPT
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
