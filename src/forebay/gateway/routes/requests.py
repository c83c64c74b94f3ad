"""`GET /v1/queue/requests`: who is in line, what runs and what has ended, request by request.

A key sees what was asked for with it, an admin everything. Each gateway knows only its own
requests: the one that is asked has the others list theirs, with the caller's own key, and names
those that do not answer in time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from forebay.api.queue import RequestList as Listed
from forebay.errors import BackendFailed
from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.authorization import seen_by
from forebay.gateway.routes.files import limit_of
from forebay.gateway.routes.json_answer import json_answer
from forebay.gateway.routes.request_list import STATES, RequestFilter, place_of

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.responses import Response

    from forebay.gateway.fleet.membership import Membership
    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.routes.request_list import Place, RequestList

LIMIT: Final = 100
LIMIT_MAX: Final = 1000
TEXT_MAX: Final = 512
"""What a user, a model or an id may have in characters."""
PEER_S: Final = 2.0
"""How long another gateway may take to list its requests."""
PEERS_MAX: Final = 64
PEER_BYTES_MAX: Final = 8 * 1024 * 1024
"""What its list may weigh: a thousand rows of the longest ids, users and models."""


@dataclass(frozen=True)
class RequestRoutes:
    """The list of requests."""

    authorizer: Authorizer
    requests: RequestList
    membership: Membership
    peers: Peers

    def routes(self) -> list[Route]:
        return [Route("/v1/queue/requests", self.listed)]

    async def listed(self, request: Request) -> Response:
        """List requests, the newest first."""
        wanted, limit = self._wanted(request), limit_of(request, LIMIT, LIMIT_MAX)
        query = request.query_params
        if query.get("own") == "true":  # another gateway asks
            return json_answer(await self._own(wanted, limit))
        others = [] if self.membership.fleet is None else self._others()
        if (before := query.get("before")) is not None:
            place = await self._place_of(request, before, wanted.key, others)
            wanted = msgspec.structs.replace(wanted, before=place)
        asked = {**dict(query), "limit": str(limit), "own": "true"}
        if wanted.before is not None:
            asked["before_arrived"] = repr(wanted.before[0])
        own, pages = await asyncio.gather(
            self._own(wanted, limit),
            asyncio.gather(*(self._ask(request, name, asked) for name in others)),
        )
        answered = [own, *(page for page in pages if page is not None)]
        # Of workers one may have restored what another has: each is told once.
        found = {place_of(row): row for page in answered for row in page.data}
        rows = sorted(found.values(), key=place_of, reverse=True)
        has_more = len(rows) > limit or any(page.has_more for page in answered)
        missing = (name for name, page in zip(others, pages, strict=True) if page is None)
        return json_answer(Listed(tuple(rows[:limit]), has_more, tuple(missing)))

    def _wanted(self, request: Request) -> RequestFilter:
        """Return what a caller wants to see of what it may; raises HttpError."""
        key = None
        if self.authorizer.needs_keys:
            key = seen_by(self.authorizer.caller(request))
        else:
            self.authorizer.admin(request)
        query = request.query_params
        for name in ("user", "model", "before", "id", "outcome"):
            if len(query.get(name, "")) > TEXT_MAX:
                raise invalid(f"{name} has at most {TEXT_MAX} characters", name)
        state = query.get("state")
        if state is not None and state not in STATES:
            raise invalid(f"state must be one of {', '.join(STATES)}", "state")
        return RequestFilter(
            state=next((one for one in STATES if one == state), None),
            user=query.get("user"),
            model=query.get("model"),
            key=key,
            id=query.get("id"),
            outcome=query.get("outcome"),
            before=_given_place(query),
        )

    async def _own(self, wanted: RequestFilter, limit: int) -> Listed:
        rows = await self.requests.newest(wanted, limit + 1)
        is_shared = self.membership.fleet is not None
        shown = await self.requests.described(rows[:limit], is_shared=is_shared)
        return Listed(shown, len(rows) > limit)

    # -- the other gateways

    def _others(self) -> list[str]:
        fleet = self.membership.fleet
        assert fleet is not None
        others = (one for one in fleet.picture().replicas if one.name != fleet.me)
        return [one.name for one in others if one.state != "lost"][:PEERS_MAX]

    async def _place_of(
        self, request: Request, request_id: str, key: str | None, others: list[str]
    ) -> Place:
        """Return where a request stands in the list; raises HttpError where it is not in it.

        Of several that had the same id, the oldest: a page must not begin where it began before.
        """
        found = await self.requests.newest(RequestFilter(id=request_id, key=key), LIMIT_MAX)
        if not found and others:
            asked = {"id": request_id, "limit": str(LIMIT_MAX), "own": "true"}
            pages = await asyncio.gather(*(self._ask(request, name, asked) for name in others))
            found = [row for page in pages if page is not None for row in page.data]
        if not found:
            raise invalid("before is not the id of a listed request", "before")
        return min(map(place_of, found))

    async def _ask(self, request: Request, name: str, query: dict[str, str]) -> Listed | None:
        """Return what another gateway lists; None where it does not answer."""
        query_string = urlencode(query).encode()
        question = Request({**request.scope, "query_string": query_string})
        try:
            async with asyncio.timeout(PEER_S):
                status, body = await self.peers.ask(question, name, b"", PEER_BYTES_MAX, PEER_S)
            return _decode(body) if status == 200 else None
        except (HttpError, BackendFailed, TimeoutError, msgspec.MsgspecError):
            return None


_decode = msgspec.json.Decoder(Listed).decode


def _given_place(query: QueryParams) -> Place | None:
    """Return where another gateway says that the page begins."""
    if "before_arrived" not in query:
        return None
    try:
        arrived = float(query["before_arrived"])
    except ValueError:
        arrived = float("nan")
    if not isfinite(arrived):
        raise invalid("before_arrived must be a number", "before_arrived")
    return arrived, query.get("before", "")
