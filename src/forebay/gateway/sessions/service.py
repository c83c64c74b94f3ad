"""The operations on sessions that `/session` and `/acp` share.

There is one order of checks: the session (404), whether it is closing (409), the prompt (400),
whether the client is still connected, and last the cap (503). Nothing is awaited between the check
of the cap and the place in the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.api.sessions import (
    CancelRequest,
    PromptAccepted,
    PromptCancelled,
    PromptRemoved,
    SessionClosed,
    SessionMade,
)
from forebay.errors import ForebayError
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.authorization import log_admin_action, seen_by
from forebay.gateway.http.json_body import convert_fields
from forebay.gateway.http.store_timeout import store_unavailable
from forebay.gateway.sessions.fields import read_prompt, read_session
from forebay.relay.openai import OPENAI
from forebay.sessions.errors import session_closing, shutting_down
from forebay.sessions.prompt import Sender

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import TypeVar

    from starlette.requests import Request

    from forebay.gateway.hot.callers import Caller, Callers
    from forebay.gateway.hot.model_names import ModelNames
    from forebay.gateway.readiness import Readiness
    from forebay.gateway.sessions.host import SessionHost
    from forebay.sessions.session import Session
    from forebay.sessions.sessions import Sessions

    T = TypeVar("T")

Fields = dict[str, Any]


class SessionService:
    """Takes and returns plain values; raises SessionRejected or HttpError."""

    def __init__(
        self, host: SessionHost, models: ModelNames, readiness: Readiness, callers: Callers
    ) -> None:
        self._host = host
        self._models = models
        self._readiness = readiness
        self._callers = callers

    @property
    def limit(self) -> int | None:
        """Prompts that a session may have pending; None is no limit."""
        return self._host.settings.max_pending_prompts or None

    async def create(self, fields: Fields, caller: Caller) -> SessionMade:
        from forebay.sessions.sessions import NewSession

        asked = read_session(fields)
        self._models.check(asked.model, caller.key, OPENAI.name, "model")
        owner = caller.owner_id
        new = NewSession(owner, asked.model, asked.system, asked.max_tokens or 0, asked.options)
        sessions = await self._sessions()
        return SessionMade((await self._stored(sessions.create(new))).id)

    async def find(self, session_id: object, caller: Caller) -> Session:
        """Return a session that this caller may see; raises SessionRejected."""
        sessions = await self._sessions()
        return sessions.find(str(session_id), seen_by(caller))

    async def seen(self, caller: Caller) -> list[Session]:
        """Return the sessions here that a caller may see."""
        owner = seen_by(caller)
        return [one for one in await self._sessions() if owner in (None, one.record.owner)]

    async def prompt(
        self, session: Session, fields: Fields, caller: Caller, request: Request
    ) -> PromptAccepted:
        if session.closing:
            raise session_closing()
        sent = read_prompt(fields)
        if await request.is_disconnected():
            raise HttpError("request_timeout", "the client left")
        if self._readiness.draining:
            raise shutting_down()
        settings = self._host.settings
        deadline_s = sent.deadline_s
        if settings.prompt_deadline_ms:  # a prompt may ask for less, not for more
            most_s = settings.prompt_deadline_ms / 1000
            deadline_s = most_s if deadline_s is None else min(deadline_s, most_s)
        sender = self._sender(caller, request)
        prompt = session.admit(sent.messages, sender, settings.max_pending_prompts, deadline_s)
        last_event_id = await self._stored(session.accept(prompt))
        return PromptAccepted(prompt.id, last_event_id, session.log.epoch)

    async def branch(self, session: Session) -> SessionMade:
        """Create a session that continues this one, when its turn in the queue comes."""
        sessions = await self._sessions()
        return SessionMade((await self._stored(sessions.branch(session))).id)

    async def cancel(self, session: Session, fields: Fields, caller: Caller) -> PromptCancelled:
        """End the active prompt, and return once that is stored."""
        prompt_id = session.cancel(convert_fields(fields, CancelRequest).prompt_id)
        await self._stored(session.flush())
        if prompt_id is not None:
            log_admin_action("prompt cancelled", caller, session.record.owner, prompt_id)
        return PromptCancelled(prompt_id, prompt_id is not None)

    async def remove(self, session: Session, prompt_id: str, caller: Caller) -> PromptRemoved:
        """Remove a queued prompt, and return once that is stored."""
        removed = session.remove(prompt_id)
        await self._stored(session.flush())
        if removed:
            log_admin_action("prompt removed", caller, session.record.owner, prompt_id)
        return PromptRemoved(prompt_id, removed)

    async def close(self, session: Session, caller: Caller) -> SessionClosed:
        sessions = await self._sessions()
        await self._stored(sessions.close(session, "deleted"))
        log_admin_action("session deleted", caller, session.record.owner, session.id)
        return SessionClosed(session.id)

    # -- inside

    async def _sessions(self) -> Sessions:
        return await self._host.ready()

    async def _stored(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ForebayError as error:
            raise store_unavailable("the session database", error) from error

    def _sender(self, caller: Caller, request: Request) -> Sender:
        callers = self._callers
        trace = request.headers.get("traceparent", "")
        return Sender(
            caller.owner_id,
            callers.user_of(caller, None),
            callers.priority_of(caller, None),
            caller.max_wait_s,
            caller.credentials,
            trace if len(trace) <= 128 and trace.isascii() and trace.isprintable() else "",
        )
