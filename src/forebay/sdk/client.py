"""The client: everything that one gateway offers, asynchronously."""

from __future__ import annotations

import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypedDict, overload
from urllib.parse import quote

from msgspec import UNSET

from forebay.sdk.batches import BatchApi, batch_file
from forebay.sdk.chat import ChatRequest, ChatStream
from forebay.sdk.jobs import JobApi, JobRequest
from forebay.sdk.prompts import MAX_PENDING, PromptSender, checked_limit
from forebay.sdk.session_api import PromptRequest
from forebay.sdk.status import ModelList
from forebay.sdk.transport import Transport, TransportOptions
from forebay.sdk.values import Capabilities, Done, Health, Place, Queued, QueueState

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import IO, Unpack

    from forebay.sdk.batches import Requests
    from forebay.sdk.transport import Pace
    from forebay.sdk.values import (
        Answer,
        Batch,
        BatchResult,
        Job,
        Piece,
        Prompt,
        SessionEvent,
        Turn,
    )


DEFAULT_URL = "http://127.0.0.1:7800"
TIMEOUT_S = 600.0
"""Longest silence of the network, as in the stock SDKs."""
RETRIES = 2
CHAT_ROUTE = "/v1/chat/completions"
WINDOW = "24h"


class ClientOptions(TypedDict, total=False):
    """What a client can be told beside where the gateway is."""

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


class JobOptions(TypedDict, total=False):
    """What a submission can say beside what is to be done."""

    job_id: int
    """Your own number for what it is about; the same work twice is one job."""
    model: str
    priority: str
    idempotency_key: str


class AsyncClient:
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
        self._jobs = JobApi(self._transport)
        self._batches = BatchApi(self._transport)
        self.prompting = PromptSender(self._transport, chance)
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

    async def models(self) -> list[str]:
        """Return the names of the models that can be asked."""
        return [model.id for model in (await self._transport.get("/v1/models", ModelList)).data]

    async def capabilities(self) -> Capabilities:
        """Return what the gateway offers, and its limits."""
        return await self._transport.get("/capabilities", Capabilities)

    async def health(self) -> Health:
        """Return that the gateway is alive; raises GatewayAway where it is not."""
        return await self._transport.get("/health", Health)

    # -- jobs

    async def submit(self, task_type: str, params: Any, **options: Unpack[JobOptions]) -> Job:
        """Hand in durable work; `job.is_new` is False where the same is under way already."""
        new = JobRequest(
            task_type,
            params,
            options.get("job_id", UNSET),
            options.get("model", UNSET),
            options.get("priority", UNSET),
            options.get("idempotency_key", UNSET),
        )
        return await self._jobs.submit(new)

    async def job(self, number: int) -> Job:
        """Return all about one job, its result included."""
        return await self._jobs.get(number)

    async def jobs(
        self,
        *,
        status: str | None = None,
        task_type: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first, without what is large; `before` a number, for more."""
        return await self._jobs.list(
            {"status": status, "type": task_type, "before": before, "limit": limit}
        )

    async def wait_job(
        self,
        number: int,
        *,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Return a job when it has ended, well or not; raises WaitTooLong after `timeout_s`."""
        return await self._jobs.wait(number, timeout_s, on_change)

    async def cancel_job(self, number: int) -> Job:
        """End a job, queued or running, and return it."""
        return await self._jobs.end(number)

    async def retry_job(self, number: int) -> Job:
        """Let a job that failed or was cancelled run again, and return it."""
        return await self._jobs.retry(number)

    # -- batches

    async def batch(
        self,
        requests: Requests,
        *,
        endpoint: str = CHAT_ROUTE,
        window: str = WINDOW,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> AsyncGenerator[BatchResult, None]:
        """Run many requests as one batch, and yield what became of each; raises BatchFailed.

        `requests` are bodies, or whole lines with a `custom_id`, or the path of such a file.
        Leaving early leaves the batch running.
        """
        begun = await self.start_batch(requests, endpoint=endpoint, window=window)
        ended = await self.wait_batch(begun.id, on_progress=on_progress)
        async with aclosing(self.batch_results(ended)) as results:
            async for result in results:
                yield result

    async def start_batch(
        self, requests: Requests, *, endpoint: str = CHAT_ROUTE, window: str = WINDOW
    ) -> Batch:
        """Start a batch and return at once."""
        return await self.send_batch(batch_file(requests, endpoint), endpoint, window)

    async def send_batch(self, file: IO[bytes], endpoint: str, window: str) -> Batch:
        """Start a batch of a file of lines, and close the file."""
        return await self._batches.start(file, endpoint, window)

    async def batch_state(self, batch_id: str) -> Batch:
        """Return a batch as it stands."""
        return await self._batches.get(batch_id)

    async def wait_batch(
        self,
        batch_id: str,
        *,
        timeout_s: float | None = None,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> Batch:
        """Return a batch when it has ended; raises WaitTooLong, and BatchFailed for bad input."""
        return await self._batches.wait(batch_id, timeout_s, on_progress)

    def batch_results(self, batch: Batch) -> AsyncGenerator[BatchResult, None]:
        """Yield what became of each line of a batch that has ended."""
        return self._batches.results(batch)

    async def cancel_batch(self, batch_id: str) -> Batch:
        """End a batch; what is done is kept."""
        return await self._batches.end(batch_id)

    async def delete_file(self, file_id: str) -> None:
        """Delete an input or output of a batch; they stay until then."""
        await self._batches.delete_file(file_id)
