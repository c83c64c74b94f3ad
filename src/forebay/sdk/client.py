"""The client: everything that one gateway offers, asynchronously."""

from __future__ import annotations

import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypedDict, overload
from urllib.parse import quote

from forebay.api.models import ModelList
from forebay.api.queue import Queue as QueueState
from forebay.api.queue import RequestList as RequestPage
from forebay.api.queue import Ticket as Place
from forebay.api.sessions import SessionList
from forebay.api.status import Capabilities, Health
from forebay.sdk.batches import BatchMethods
from forebay.sdk.chat import ChatRequest, ChatStream
from forebay.sdk.jobs import JobMethods
from forebay.sdk.prompts import MAX_PENDING, PromptSender, checked_limit
from forebay.sdk.session_api import PromptRequest
from forebay.sdk.transport import Transport, TransportOptions, query
from forebay.sdk.values import Done, Queued

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import Unpack

    from forebay.sdk.transport import Pace
    from forebay.sdk.values import (
        Answer,
        Piece,
        Prompt,
        SessionEvent,
        Turn,
    )


DEFAULT_URL = "http://127.0.0.1:7800"
TIMEOUT_S = 600.0
"""Longest silence of the network, as in the stock SDKs."""
RETRIES = 2


class ClientOptions(TypedDict, total=False):
    """Options of a client beside the gateway's address."""

    max_pending: float | None
    """Prompts of one session that `prompt` lets be under way here; None, 0, infinity: any."""
    timeout_s: float
    retries: int
    """How often something that was certainly not taken is tried again."""
    retry_queue_full: bool
    """Whether a full session (`PromptQueueFullError`) is waited for, too."""
    verify: bool | ssl.SSLContext
    """How the certificate of an https gateway is checked."""
    random: random.Random
    pace: Pace


class AsyncClient(JobMethods, BatchMethods):
    """Asks one gateway. Use it as a context manager, or `close()` it.

    Everything raises `SdkError`: `GatewayAway` where nothing answers, `GatewayError` for a no.
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self.url = url.rstrip("/")
        self._max_pending = checked_limit(options.get("max_pending", MAX_PENDING))
        chance = options.get("random") or random.Random()
        reached = TransportOptions(
            self.url,
            key,
            options.get("timeout_s", TIMEOUT_S),
            options.get("retries", RETRIES),
            options.get("retry_queue_full", False),
            options.get("verify", True),
        )
        self._transport = Transport(reached, chance, options.get("pace"))
        self.prompting = PromptSender(self._transport)
        """For session clients."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every task, connection and wait of this client; a wait raises ClientClosed."""
        await self._transport.close()

    # -- live requests

    async def chat(
        self,
        /,
        model: str,
        messages: Prompt,
        *,
        on_queue: Callable[[Queued], object] | None = None,
        priority: str | None = None,
        max_wait_s: float | None = None,
        **params: Any,
    ) -> Answer:
        """Ask a model and return its whole answer; `on_queue` is told the place while it waits.

        `params` are those of OpenAI's chat route. Cancelling ends the request at the gateway.
        """
        async with aclosing(
            self.stream(model, messages, priority=priority, max_wait_s=max_wait_s, **params)
        ) as pieces:
            async for piece in pieces:
                if isinstance(piece, Queued) and on_queue is not None:
                    on_queue(piece)
                elif isinstance(piece, Done):
                    return piece.answer
        raise AssertionError("a stream without an end")

    def stream(
        self,
        model: str,
        messages: Prompt,
        *,
        priority: str | None = None,
        max_wait_s: float | None = None,
        **params: Any,
    ) -> AsyncGenerator[Piece, None]:
        """Yield Queued while it waits, Started, Delta for each piece of text, and Done."""
        request = ChatRequest(model, messages, priority, max_wait_s, params)
        return ChatStream(self._transport, request).pieces()

    async def prompt(
        self,
        session_id: str,
        prompt: Prompt,
        *,
        deadline_ms: float | None = None,
        priority: str | None = None,
        on_event: Callable[[SessionEvent], object] | None = None,
    ) -> Turn:
        """Send one prompt to a session and wait for its end; raises TurnFailed.

        Follows the session only meanwhile; a conversation is better held by a session client.
        Cancelling stops the waiting, not the turn.
        """
        request = PromptRequest(prompt, deadline_ms, priority)
        return await self.prompting.prompt_once(session_id, request, self._max_pending, on_event)

    # -- looking in

    @overload
    def queue(self) -> Coroutine[Any, Any, QueueState]: ...
    @overload
    def queue(self, request_id: str) -> Coroutine[Any, Any, Place]: ...
    def queue(self, request_id: str | None = None) -> Coroutine[Any, Any, QueueState | Place]:
        """Return how long the line is, or where one request stands (NotFound once it has ended)."""
        if request_id is None:
            return self._transport.get("/v1/queue", QueueState)
        return self._transport.get(f"/v1/queue/{quote(request_id)}", Place)

    async def queue_requests(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        model: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> RequestPage:
        """Return requests one by one, the newest first: those of the same key, all for an admin.

        `state` is `waiting`, `running` or `ended`, `before` the id of the last one seen. Without
        keys they are told to programs on the gateway's machine only.
        """
        asked = query(state=state, user=user, model=model, limit=limit, before=before)
        return await self._transport.get(f"/v1/queue/requests{asked}", RequestPage)

    async def sessions(self, *, before: str | None = None, limit: int | None = None) -> SessionList:
        """Return the sessions of this key, an admin's everybody's; `before` what `next` said."""
        asked = query(before=before, limit=limit)
        return await self._transport.get(f"/session{asked}", SessionList)

    async def models(self) -> list[str]:
        """Return the names of the models that can be asked."""
        return [model.id for model in (await self._transport.get("/v1/models", ModelList)).data]

    async def capabilities(self) -> Capabilities:
        """Return what the gateway offers, and its limits."""
        return await self._transport.get("/capabilities", Capabilities)

    async def health(self) -> Health:
        """Return that the gateway is alive; raises GatewayAway where it is not."""
        return await self._transport.get("/health", Health)
