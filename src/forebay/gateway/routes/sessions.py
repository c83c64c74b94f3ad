"""`/session`: conversations with backpressure."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import Route

from forebay.api.fields import OMITTED
from forebay.api.sessions import (
    PendingPrompt,
    PendingPrompts,
    RememberedMessage,
    SessionLine,
    SessionList,
    SessionMessages,
    SessionTurn,
)
from forebay.api.sessions import PromptQueueFull as QueueFullBody
from forebay.api.sessions import Session as SessionState
from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.fleet.peers import HEAD_S
from forebay.gateway.http.authorization import seen_by
from forebay.gateway.http.json_body import decode_body
from forebay.gateway.http.sse import EventStreamResponse, head_response, while_connected
from forebay.gateway.routes.json_answer import json_answer
from forebay.sessions.errors import RETRY_AFTER_S as PROMPT_RETRY_AFTER_S
from forebay.sessions.errors import PromptQueueFull
from forebay.sessions.events import READERS_MAX
from forebay.shares import RETRY_AFTER_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.http.authorization import Authorizer, OwnerNames
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.sessions.service import SessionService
    from forebay.sessions.events import EventReader
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.session import Session

    Handler = Callable[[Session, Request, Caller], Awaitable[Response]]

LIST_MAX, LIST_BYTES_MAX, LIST_S = 1000, 4_194_304, 2.0
"""Of a list of sessions: how many, and how large and how slow that of another gateway may be."""
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
BODY_BYTES_MAX = 2_097_152
"""A conversation is held in memory; what is larger is no prompt."""


class SessionRoutes:
    """`/session` and everything below it."""

    def __init__(
        self, authorizer: Authorizer, reader: RequestReader, peers: Peers, service: SessionService
    ) -> None:
        self._authorizer = authorizer
        self._reader = reader
        self._peers = peers
        self._service = service

    def routes(self) -> list[Route]:
        one = "/session/{session_id}"
        pending = f"{one}/pending-prompts"
        return [
            Route("/session", self.create, methods=["POST"]),
            Route("/session", self.list_sessions),
            Route(one, self._authorized(self.show)),
            Route(one, self._authorized(self.close), methods=["DELETE"]),
            Route(f"{one}/prompt", self._authorized(self.prompt), methods=["POST"]),
            Route(f"{one}/events", self._authorized(self.events)),
            Route(f"{one}/messages", self._authorized(self.messages)),
            Route(pending, self._authorized(self.pending)),
            Route(f"{pending}/{{prompt_id}}", self._authorized(self.remove), methods=["DELETE"]),
            Route(f"{one}/cancel", self._authorized(self.cancel), methods=["POST"]),
            Route(f"{one}/branch", self._authorized(self.branch, None), methods=["POST"]),
            Route(f"{one}/turns/{{prompt_id}}", self._authorized(self.turn)),
        ]

    def _authorized(self, handler: Handler, limit_s: float | None = HEAD_S) -> Callable[..., Any]:
        """Return the endpoint of a handler, which is given a session that its caller may see.

        The one place that authorises: first the caller, then, on the gateway that holds the
        session, its owner. Another gateway answers within `limit_s`; None is no limit.
        """

        async def endpoint(request: Request) -> Response:
            caller = self._authorizer.caller(request)
            session_id = request.path_params["session_id"]
            peer = await self._peers.of_session(session_id, request)
            if peer is not None:
                return await self._peers.forward(request, peer, limit_s)
            session = await self._service.find(session_id, caller)
            return await handler(session, request, caller)

        return endpoint

    async def create(self, request: Request) -> Response:
        caller = self._authorizer.caller(request)
        fields = await self._fields(request)
        return json_answer(await self._service.create(fields, caller), 201)

    async def list_sessions(self, request: Request) -> Response:
        """List sessions, the newest first: the caller's, or for admins all; those elsewhere too."""
        caller = self._authorizer.caller(request)
        if caller.key is None:  # everybody has the same name: only the operator may see them all
            self._authorizer.admin(request)
        limit, before = _page(request)
        names = self._authorizer.names_for(seen_by(caller) or None)
        found = [_line(session, names) for session in await self._service.seen(caller)]
        others, silent, more = await self._of_others(request)
        found = sorted(found + others, key=_age, reverse=True)
        if before is not None:
            found = [one for one in found if _age(one) < before]
        more, next_page = more or len(found) > limit, OMITTED
        if more:
            created, session_id = _age(found[limit - 1])
            next_page = f"{created!r}_{session_id}"
        return json_answer(SessionList(found[:limit], more, next_page, silent or OMITTED))

    async def _of_others(self, request: Request) -> tuple[list[SessionLine], list[str], bool]:
        """Return what other gateways list, who did not in time, and whether they have more."""
        names = self._peers.others(request)
        asked = (self._peers.ask(request, name, b"", LIST_BYTES_MAX, LIST_S) for name in names)
        listed: list[SessionLine] = []
        silent: list[str] = []
        more = False
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, tuple) and answer[0] == 200:
                theirs = msgspec.json.decode(answer[1], type=SessionList)
                listed += (replace(one, owner=one.owner or OMITTED) for one in theirs.data)
                more = more or theirs.has_more
            elif isinstance(answer, tuple | HttpError):
                silent.append(name)
            else:
                raise answer
        return listed, silent, more

    async def show(self, session: Session, request: Request, caller: Caller) -> Response:
        return json_answer(self._shown(session))

    async def close(self, session: Session, request: Request, caller: Caller) -> Response:
        return json_answer(await self._service.close(session, caller))

    async def prompt(self, session: Session, request: Request, caller: Caller) -> Response:
        fields = await self._fields(request)
        return json_answer(await self._service.prompt(session, fields, caller, request), 202)

    async def events(self, session: Session, request: Request, caller: Caller) -> Response:
        after = _last_event_id(request)
        if (head := head_response(request)) is not None:
            return head
        if session.log.readers >= READERS_MAX:
            words = f"{READERS_MAX} clients already follow this session"
            raise HttpError("too_many_connections", words, retry_after_s=RETRY_AFTER_S)
        reader = session.log.follow(after)
        return EventStreamResponse(_frames(reader), reader)

    async def messages(self, session: Session, request: Request, caller: Caller) -> Response:
        history = session.conversation.history()
        said = [RememberedMessage(role=one.role, content=one.content) for one in history]
        return json_answer(SessionMessages(session.id, said))

    async def pending(self, session: Session, request: Request, caller: Caller) -> Response:
        prompts = session.queue.prompts()
        listed = tuple(_pending(one) for one in prompts if one.status != "accepting")
        limit, pending = self._service.limit, session.queue.pending
        return json_answer(PendingPrompts(session.id, limit, pending, listed))

    async def remove(self, session: Session, request: Request, caller: Caller) -> Response:
        prompt_id = request.path_params["prompt_id"]
        return json_answer(await self._service.remove(session, prompt_id, caller))

    async def cancel(self, session: Session, request: Request, caller: Caller) -> Response:
        fields = await self._fields(request, or_none=True)
        return json_answer(await self._service.cancel(session, fields, caller))

    async def branch(self, session: Session, request: Request, caller: Caller) -> Response:
        """Answer when the branch's turn comes; a client that leaves gives up its place."""
        made = await while_connected(request, self._service.branch(session))
        return json_answer(made, 201)

    async def turn(self, session: Session, request: Request, caller: Caller) -> Response:
        return json_answer(_turn(session.find(request.path_params["prompt_id"])))

    # -- inside

    async def _fields(self, request: Request, *, or_none: bool = False) -> dict[str, Any]:
        body = await self._reader.read(request, BODY_BYTES_MAX)
        return {} if or_none and not body else await decode_body(body, dict[str, Any])

    def _shown(self, session: Session) -> SessionState:
        record, conversation = session.record, session.conversation
        waiting = [one for one in session.queue.prompts() if one.status == "queued"]
        return SessionState(
            session_id=session.id,
            model=record.model,
            system=record.system,
            max_tokens=record.max_tokens or None,
            options=record.options,
            state="closing" if session.closing else "open",
            pending_count=session.queue.pending,
            queued_count=len(waiting),
            limit=self._service.limit,
            active_prompt_id=session.active_id,
            turns=len(conversation.turns),
            dropped_turns=conversation.dropped,
            context_tokens=session.context_tokens(),
            created_at=record.created_at,
            last_event_id=session.log.last_id,
            event_epoch=session.log.epoch,
        )


def queue_full(full: PromptQueueFull) -> Response:
    """Return the answer to a prompt over the cap."""
    problem, session_id, limit = full.problem, full.session_id, full.limit
    body = QueueFullBody(problem.message, session_id, limit, full.pending_count)
    headers = {
        "retry-after": f"{PROMPT_RETRY_AFTER_S:.0f}",
        "retry-after-ms": f"{PROMPT_RETRY_AFTER_S * 1000:.0f}",
        "x-should-retry": "true",
    }
    return Response(msgspec.json.encode(body), 503, headers, "application/json")


def _page(request: Request) -> tuple[int, tuple[float, str] | None]:
    """Return how many to list, and before which; raises HttpError."""
    given, before = request.query_params.get("limit", "100"), request.query_params.get("before")
    if not (given.isascii() and given.isdigit() and len(given) < 5 and 0 < int(given) <= LIST_MAX):
        raise invalid(f"limit must be a number from 1 to {LIST_MAX}", "limit")
    if before is None:
        return int(given), None
    created, mark, session_id = before.partition("_")
    if not mark or not _TIME.fullmatch(created):
        raise invalid("before must be the `next` of an earlier page", "before")
    return int(given), (float(created), session_id)


def _age(listed: SessionLine) -> tuple[float, str]:
    return listed.created_at or 0.0, listed.session_id


def _line(session: Session, names: OwnerNames | None) -> SessionLine:
    """Return a session as a list shows it; for admins, whose it is."""
    record, pending = session.record, session.queue.pending
    idle = "queued" if pending else "idle"
    status = "closing" if session.closing else "running" if session.active_id else idle
    return SessionLine(
        session_id=session.id,
        model=record.model,
        status=status,
        pending=pending,
        turns=len(session.conversation.turns),
        created_at=record.created_at,
        used_at=session.used_at,
        owner=OMITTED if names is None else names(record.owner),
    )


async def _frames(reader: EventReader) -> AsyncIterator[bytes]:
    while (frames := await reader.next()) is not None:
        yield frames


def _pending(prompt: Prompt) -> PendingPrompt:
    return PendingPrompt(
        prompt.id, prompt.text(), prompt.accepted_at, prompt.status, prompt.sender.user
    )


def _turn(prompt: Prompt) -> SessionTurn:
    result, status = prompt.result, prompt.status
    if status == "accepting" or (prompt.is_over and not prompt.is_published):
        # An outcome that is not written yet may be another one after a crash.
        status = "queued" if prompt.started_at is None else "running"
        result = None
    if result is None:
        return SessionTurn(prompt.id, status)
    return SessionTurn(
        prompt.id, status, result.error, result.text, result.finish_reason, result.usage
    )


def _last_event_id(request: Request) -> int | None:
    given = request.headers.get("last-event-id") or request.query_params.get("lastEventId")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise invalid("Last-Event-ID must be the number of an event", "Last-Event-ID")
    return int(given)
