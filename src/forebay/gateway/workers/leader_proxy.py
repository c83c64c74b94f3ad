"""Forward to the leader what only it can answer: jobs, sessions, files, admin, the page's data.

A worker that does not lead answers what it knows itself (`OWN`) and streams everything else to the
leader and back, with the caller's own headers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from forebay.gateway.errors.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.relay.problem import Problem

OWN: Final = (
    "/health", "/ready", "/capabilities", "/openapi.json", "/dashboard/", "/v1/models", "/api/",
    "/tokenize", "/detokenize", "/v1/messages",
)  # fmt: skip
"""How the paths begin that every worker answers itself, beside the page at `/`."""
GUARDS: Final = "/guard/"
"""Has a token of its own instead of a key."""
FILES: Final = "/v1/files"
UPLOAD_BYTES: Final = 262_144
"""What an upload takes of the memory: it is streamed on."""
LEADER_S: Final = 3.0
"""How long a request waits for another worker to take the lead."""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a source of messages that begins with a body which has been read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


@dataclass(frozen=True)
class LeaderProxy:
    """Answers here, or has the leader answer."""

    app: ASGIApp
    store: WorkerStore
    peers: Peers
    authorizer: Authorizer
    reader: RequestReader
    body_bytes_max: int
    render: Callable[[Problem, Request], Response]
    """Makes an answer of a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if self.store.leads or path == "/" or path.startswith(OWN):
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._passed_on(request)
        except HttpError as error:
            answer = self.render(error.problem, request)
        if answer is None and hasattr(request, "_body"):  # read, and then this worker led
            receive = _again(request._body, receive)
        await (answer or self.app)(scope, receive, send)

    async def _passed_on(self, request: Request) -> Response | None:
        """Return the leader's answer; None where this worker leads by now."""
        await self._take_room(request)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LEADER_S
        while not self.store.leads:
            leader = self.store.leader
            if leader:
                try:
                    return await self.peers.forward(request, leader.partition("-")[0], None)
                except HttpError as error:
                    if error.problem.code != "replica_unavailable" or loop.time() > deadline_s:
                        raise
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self.store.change()
            except TimeoutError:
                raise HttpError(
                    "replica_unavailable", "no worker is the leader at present"
                ) from None
        return None

    async def _take_room(self, request: Request) -> None:
        """Check the caller before any body is read, and count it here: the leader does not."""
        length = request.headers.get("content-length", "")
        has_body = length not in ("", "0") or "transfer-encoding" in request.headers
        if not has_body or request.url.path.startswith(GUARDS):
            self.authorizer.probe(request)
            return
        self.authorizer.caller(request)
        most = UPLOAD_BYTES if request.url.path.startswith(FILES) else self.body_bytes_max
        await self.reader.reserve(request, min(int(length), most) if length.isdigit() else most)
