"""A stored conversation: one long-lived subscription, and its prompts."""

from __future__ import annotations

import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypedDict

from forebay.api.sessions import (
    PendingPrompts,
    PromptCancelled,
    PromptRemoved,
    SessionMade,
    SessionMessages,
)
from forebay.api.sessions import Session as SessionState
from forebay.sdk.errors import ClientClosed, NotFound, Refused
from forebay.sdk.prompts import MAX_PENDING, EventBuffer, OpenPrompts, checked_limit
from forebay.sdk.session_api import PromptRequest, Subscription, session_path
from forebay.sdk.transport import ApiCall

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable
    from typing import Unpack

    from forebay.sdk.client import AsyncClient
    from forebay.sdk.prompts import AsyncSentPrompt
    from forebay.sdk.transport import Transport
    from forebay.sdk.values import (
        Message,
        Prompt,
        SessionEvent,
        Turn,
    )

BRANCH_S = 3600.0
"""The answer comes when the session's other prompts are done."""
RUNNING = 409
"""The status of an attempt to remove a prompt that runs already."""


class SessionOptions(TypedDict, total=False):
    """How a session client behaves, and what a new session is made of."""

    max_pending: float | None
    """Prompts that may be under way here; the gateway's capability value fits. None: any number."""
    model: str | None
    system: str | None
    max_tokens: int | None
    options: dict[str, Any] | None
    """What is passed to the node with every turn: temperature, top_p, seed, stop, ..."""


class AsyncSessionClient:
    """One session of a client: `create_or_attach`, `load` or `resume` one, then talk.

    Several session clients of one client may share a session: they share one count of what is
    under way, and each holds its own `max_pending` against it.
    """

    def __init__(
        self,
        client: AsyncClient,
        state: SessionState,
        max_pending: float | None = MAX_PENDING,
        last_event_id: int | None = None,
    ) -> None:
        self.max_pending = checked_limit(max_pending)
        """How many prompts may be under way here; None: any number."""
        self._client = client
        self._prompting = client.prompting
        self._transport = client.prompting.transport
        self.session_id = state.session_id
        self.model = state.model
        self.is_new = False
        """Whether this client made the session."""
        self.history: list[Message] = []
        """What had been said when it was loaded."""
        self._prompts = OpenPrompts(self._transport, state.session_id)
        self._prompts.note_epoch(state.event_epoch)
        self._kept: EventBuffer | None = None
        """What came since the event that a session was resumed after, until somebody asks."""
        if last_event_id is not None:
            self._kept = EventBuffer()
            self._prompts.readers.add(self._kept)
        self._subscription = Subscription(
            self._transport,
            self.session_id,
            state.last_event_id if last_event_id is None else last_event_id,
            self._prompts,
        )
        self._following: asyncio.Task[None] | None = None
        self._is_closed = False
        self._listen()

    # -- to begin

    @classmethod
    async def create_or_attach(
        cls, client: AsyncClient, session_id: str | None = None, **options: Unpack[SessionOptions]
    ) -> Self:
        """Attach to a session that is there, else make one (`is_new`), for which `model` is needed.

        Ids are the gateway's to give: a session that is made has another one than was asked for.
        """
        max_pending = checked_limit(options.get("max_pending", MAX_PENDING))
        model = options.get("model")
        transport = client.prompting.transport
        if session_id is not None:
            try:
                state = await _state(transport, session_id)
            except NotFound:
                if model is None:
                    raise
            else:
                if model is not None and model != state.model:
                    raise ValueError(f"model: session {session_id} uses {state.model}")
                return cls(client, state, max_pending)
        if model is None:
            raise ValueError("model: needed to make a session")
        made = await transport.ask(_new_session(model, options), SessionMade)
        session = cls(client, await _state(transport, made.session_id), max_pending)
        session.is_new = True
        return session

    @classmethod
    async def load(
        cls, client: AsyncClient, session_id: str, *, max_pending: float | None = MAX_PENDING
    ) -> Self:
        """Attach to a session that must be there, and fetch its `history`; raises NotFound."""
        limit = checked_limit(max_pending)
        transport = client.prompting.transport
        state, history = await _state(transport, session_id), await _messages(transport, session_id)
        session = cls(client, state, limit)
        session.history = history
        return session

    @classmethod
    async def resume(
        cls,
        client: AsyncClient,
        session_id: str,
        last_event_id: int,
        *,
        max_pending: float | None = MAX_PENDING,
    ) -> Self:
        """Go on after a known event: `events()` begins with what came since; raises NotFound."""
        limit = checked_limit(max_pending)
        state = await _state(client.prompting.transport, session_id)
        return cls(client, state, limit, last_event_id)

    # -- to talk

    async def prompt(
        self,
        prompt: Prompt,
        *,
        deadline_ms: float | None = None,
        priority: str | None = None,
        on_event: Callable[[SessionEvent], object] | None = None,
    ) -> Turn:
        """Say something and wait for the end of the turn; raises TurnFailed.

        Cancelling stops the waiting and gives the place here back; the turn goes on at the gateway.
        """
        sent = await self.send(prompt, deadline_ms=deadline_ms, priority=priority)
        return await sent.finish_with(on_event)

    async def send(
        self, prompt: Prompt, *, deadline_ms: float | None = None, priority: str | None = None
    ) -> AsyncSentPrompt:
        """Say something and return as soon as it is accepted.

        Raises PendingPromptLimitError without sending anything, PromptQueueFullError for the
        gateway's own limit, and SdkError.
        """
        request = PromptRequest(prompt, deadline_ms, priority)
        if self._is_closed:
            raise ClientClosed("the session client is closed")
        sent = await self._prompting.send(self._prompts, self.session_id, request, self.max_pending)
        self._listen()  # it may have given up meanwhile
        return sent

    def events(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield every event of the session from now on, until it is closed."""
        buffer, self._kept = self._kept or EventBuffer(), None
        self._prompts.readers.add(buffer)
        if not self._is_listening():
            buffer.end()
        return self._read(buffer)

    async def cancel(self, prompt_id: str | None = None) -> str | None:
        """End the turn that runs, and return its prompt's id; None where none did.

        With an id, only where it is that prompt that runs.
        """
        body = None if prompt_id is None else {"promptId": prompt_id}
        call = ApiCall("POST", session_path(self.session_id, "cancel"), body)
        found = await self._transport.ask(call, PromptCancelled)
        return found.prompt_id if found.cancelled else None

    async def remove(self, prompt_id: str) -> bool:
        """Take a prompt out that waits; False where that was done before. Raises GatewayError."""
        path = session_path(self.session_id, "pending-prompts", prompt_id)
        return (await self._transport.ask(ApiCall("DELETE", path), PromptRemoved)).removed

    async def withdraw(self, prompt_id: str) -> None:
        """End a prompt whether it waits or runs; nothing where it has ended."""
        try:
            await self.remove(prompt_id)
        except NotFound:
            return
        except Refused as refused:
            if refused.status != RUNNING:
                raise
            await self.cancel(prompt_id)

    async def pending(self) -> PendingPrompts:
        """Return the prompts that wait or run, whoever sent them."""
        path = session_path(self.session_id, "pending-prompts")
        return await self._transport.get(path, PendingPrompts)

    async def state(self) -> SessionState:
        """Return the session as the gateway sees it now."""
        return await _state(self._transport, self.session_id)

    async def messages(self) -> list[Message]:
        """Return what has been said, as it would be sent."""
        return await _messages(self._transport, self.session_id)

    async def branch(self) -> Self:
        """Make another session with the same history, when the turns before it are done."""
        call = ApiCall("POST", session_path(self.session_id, "branch"), read_s=BRANCH_S)
        made = await self._transport.ask(call, SessionMade)
        state = await _state(self._transport, made.session_id)
        session = type(self)(self._client, state, self.max_pending)
        session.is_new = True
        return session

    @property
    def last_event_id(self) -> int:
        """The last event heard; `resume` goes on after it."""
        return self._subscription.last_event_id

    @property
    def pending_here(self) -> int:
        """How many prompts of the session are under way by this client."""
        return self._prompting.reservations.held(self.session_id)

    # -- to end

    async def close(self, *, delete: bool = False) -> None:
        """Stop listening; waits raise ClientClosed. With `delete` the session itself is ended."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if delete:
                with contextlib.suppress(NotFound):  # somebody else was faster
                    call = ApiCall("DELETE", session_path(self.session_id))
                    await self._transport.fetch(call)
        finally:
            if self._following is not None:
                await self._transport.tasks.end(self._following)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- inside

    async def _read(self, buffer: EventBuffer) -> AsyncGenerator[SessionEvent, None]:
        try:
            async with aclosing(buffer.read()) as events:
                async for event in events:
                    yield event
        finally:
            self._prompts.readers.discard(buffer)

    def _is_listening(self) -> bool:
        return self._following is not None and not self._following.done()

    def _listen(self) -> None:
        """See that somebody reads the events."""
        if not self._is_listening() and not self._is_closed:
            self._following = self._transport.tasks.start(
                self._prompting.follow(self._subscription, self._prompts)
            )


async def _state(transport: Transport, session_id: str) -> SessionState:
    return await transport.get(session_path(session_id), SessionState)


async def _messages(transport: Transport, session_id: str) -> list[Message]:
    path = session_path(session_id, "messages")
    return list((await transport.get(path, SessionMessages)).messages)


def _new_session(model: str, options: SessionOptions) -> ApiCall:
    given = {
        "model": model,
        "system": options.get("system"),
        "maxTokens": options.get("max_tokens"),
        "options": options.get("options"),
    }
    body = {name: value for name, value in given.items() if value is not None}
    return ApiCall("POST", "/session", body)
