"""The clients for programs without an event loop: the asynchronous ones, waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload

from forebay.sdk.background_loop import BackgroundLoop, CallbackQueue
from forebay.sdk.batches import batch_file
from forebay.sdk.client import CHAT_ROUTE, DEFAULT_URL, WINDOW, AsyncClient
from forebay.sdk.prompts import MAX_PENDING
from forebay.sdk.session_client import AsyncSessionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import Unpack

    from forebay.sdk.batches import Requests
    from forebay.sdk.client import ClientOptions, JobOptions
    from forebay.sdk.prompts import AsyncSentPrompt
    from forebay.sdk.session_client import SessionOptions
    from forebay.sdk.values import (
        Answer,
        Batch,
        BatchResult,
        Capabilities,
        Health,
        Job,
        Message,
        PendingPrompts,
        Piece,
        Place,
        Prompt,
        Queued,
        QueueState,
        SessionEvent,
        SessionState,
        Turn,
    )


class Client:
    """Asks one gateway; any number of threads may use it. A context manager, or `close()` it.

    Each method is that of `AsyncClient`. Callbacks run in the thread that waits, and Ctrl-C ends
    what is waited for.
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self.asynchronous = AsyncClient(url, key, **options)
        """What does the work; to be used on `loop` only."""
        self.loop = BackgroundLoop()

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return self.asynchronous.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every wait, connection and thread of this client; a wait raises ClientClosed."""
        self.loop.close(self.asynchronous.close())

    # -- live requests

    def chat(
        self,
        model: str,
        messages: Prompt,
        *,
        on_queue: Callable[[Queued], object] | None = None,
        priority: str | None = None,
        max_wait_s: float | None = None,
        **params: Any,
    ) -> Answer:
        """Ask a model and return its whole answer; `on_queue` is told the place while it waits."""
        calls = CallbackQueue()
        return self.loop.run(
            self.asynchronous.chat(
                model,
                messages,
                on_queue=calls.forward(on_queue),
                priority=priority,
                max_wait_s=max_wait_s,
                **params,
            ),
            calls,
        )

    def stream(
        self,
        model: str,
        messages: Prompt,
        *,
        priority: str | None = None,
        max_wait_s: float | None = None,
        **params: Any,
    ) -> Generator[Piece, None, None]:
        """Yield Queued while it waits, Started, Delta for each piece of text, and Done."""
        pieces = self.asynchronous.stream(
            model, messages, priority=priority, max_wait_s=max_wait_s, **params
        )
        return self.loop.iterate(pieces)

    def prompt(
        self,
        session_id: str,
        prompt: Prompt,
        *,
        deadline_ms: float | None = None,
        priority: str | None = None,
        on_event: Callable[[SessionEvent], object] | None = None,
    ) -> Turn:
        """Send one prompt to a session and wait for its end; raises TurnFailed."""
        calls = CallbackQueue()
        return self.loop.run(
            self.asynchronous.prompt(
                session_id,
                prompt,
                deadline_ms=deadline_ms,
                priority=priority,
                on_event=calls.forward(on_event),
            ),
            calls,
        )

    # -- looking in

    @overload
    def queue(self) -> QueueState: ...
    @overload
    def queue(self, request_id: str) -> Place: ...
    def queue(self, request_id: str | None = None) -> QueueState | Place:
        """Return how long the line is, or where one request stands (NotFound once it has ended)."""
        if request_id is None:
            return self.loop.run(self.asynchronous.queue())
        return self.loop.run(self.asynchronous.queue(request_id))

    def models(self) -> list[str]:
        """Return the names of the models that can be asked."""
        return self.loop.run(self.asynchronous.models())

    def capabilities(self) -> Capabilities:
        """Return what the gateway offers, and its limits."""
        return self.loop.run(self.asynchronous.capabilities())

    def health(self) -> Health:
        """Return that the gateway is alive; raises GatewayAway where it is not."""
        return self.loop.run(self.asynchronous.health())

    # -- jobs

    def submit(self, task_type: str, params: Any, **options: Unpack[JobOptions]) -> Job:
        """Hand in durable work; `job.is_new` is False where the same is under way already."""
        return self.loop.run(self.asynchronous.submit(task_type, params, **options))

    def job(self, number: int) -> Job:
        """Return all about one job, its result included."""
        return self.loop.run(self.asynchronous.job(number))

    def jobs(
        self,
        *,
        status: str | None = None,
        task_type: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first, without what is large; `before` a number, for more."""
        return self.loop.run(
            self.asynchronous.jobs(status=status, task_type=task_type, before=before, limit=limit)
        )

    def wait_job(
        self,
        number: int,
        *,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Return a job when it has ended, well or not; raises WaitTooLong after `timeout_s`."""
        calls = CallbackQueue()
        waiting = self.asynchronous.wait_job(
            number, timeout_s=timeout_s, on_change=calls.forward(on_change)
        )
        return self.loop.run(waiting, calls)

    def cancel_job(self, number: int) -> Job:
        """End a job, queued or running, and return it."""
        return self.loop.run(self.asynchronous.cancel_job(number))

    def retry_job(self, number: int) -> Job:
        """Let a job that failed or was cancelled run again, and return it."""
        return self.loop.run(self.asynchronous.retry_job(number))

    # -- batches

    def batch(
        self,
        requests: Requests,
        *,
        endpoint: str = CHAT_ROUTE,
        window: str = WINDOW,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> Generator[BatchResult, None, None]:
        """Run many requests as one batch, and yield what became of each; raises BatchFailed."""
        begun = self.start_batch(requests, endpoint=endpoint, window=window)
        ended = self.wait_batch(begun.id, on_progress=on_progress)
        yield from self.batch_results(ended)

    def start_batch(
        self, requests: Requests, *, endpoint: str = CHAT_ROUTE, window: str = WINDOW
    ) -> Batch:
        """Start a batch and return at once."""
        # Made in this thread: what the requests come from may belong to it, as a cursor does.
        file = batch_file(requests, endpoint)
        return self.loop.run(self.asynchronous.send_batch(file, endpoint, window))

    def batch_state(self, batch_id: str) -> Batch:
        """Return a batch as it stands."""
        return self.loop.run(self.asynchronous.batch_state(batch_id))

    def wait_batch(
        self,
        batch_id: str,
        *,
        timeout_s: float | None = None,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> Batch:
        """Return a batch when it has ended; raises WaitTooLong, and BatchFailed for bad input."""
        calls = CallbackQueue()
        waiting = self.asynchronous.wait_batch(
            batch_id, timeout_s=timeout_s, on_progress=calls.forward(on_progress)
        )
        return self.loop.run(waiting, calls)

    def batch_results(self, batch: Batch) -> Generator[BatchResult, None, None]:
        """Yield what became of each line of a batch that has ended."""
        return self.loop.iterate(self.asynchronous.batch_results(batch))

    def cancel_batch(self, batch_id: str) -> Batch:
        """End a batch; what is done is kept."""
        return self.loop.run(self.asynchronous.cancel_batch(batch_id))

    def delete_file(self, file_id: str) -> None:
        """Delete an input or output of a batch; they stay until then."""
        self.loop.run(self.asynchronous.delete_file(file_id))


class SentPrompt:
    """What `send` returns: the prompt's events as they come, and its result."""

    def __init__(self, loop: BackgroundLoop, sent: AsyncSentPrompt) -> None:
        self._loop = loop
        self._sent = sent
        self.prompt_id = sent.prompt_id

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._sent.done

    def result(self) -> Turn:
        """Wait for the end; raises TurnFailed, or the SdkError that made waiting pointless."""
        return self._loop.run(self._sent.result())

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield its events, the terminal one last; for one reader."""
        return self._loop.iterate(self._sent.events())


class SessionClient:
    """One session of a client: `create_or_attach`, `load` or `resume` one, then talk.

    Each method is that of `AsyncSessionClient`.
    """

    def __init__(self, client: Client, session: AsyncSessionClient) -> None:
        self._client = client
        self._loop = client.loop
        self.asynchronous = session
        """What does the work; to be used on the client's `loop` only."""
        self.session_id = session.session_id
        self.model = session.model
        self.max_pending = session.max_pending
        """How many prompts may be under way here; None: any number."""
        self.is_new = session.is_new
        """Whether this client made the session."""
        self.history = session.history
        """What had been said when it was loaded."""

    @classmethod
    def create_or_attach(
        cls, client: Client, session_id: str | None = None, **options: Unpack[SessionOptions]
    ) -> Self:
        """Attach to a session that is there, else make one (`is_new`); that needs a `model`."""
        making = AsyncSessionClient.create_or_attach(client.asynchronous, session_id, **options)
        return cls(client, client.loop.run(making))

    @classmethod
    def load(
        cls, client: Client, session_id: str, *, max_pending: float | None = MAX_PENDING
    ) -> Self:
        """Attach to a session that must be there, and fetch its `history`; raises NotFound."""
        loading = AsyncSessionClient.load(client.asynchronous, session_id, max_pending=max_pending)
        return cls(client, client.loop.run(loading))

    @classmethod
    def resume(
        cls,
        client: Client,
        session_id: str,
        last_event_id: int,
        *,
        max_pending: float | None = MAX_PENDING,
    ) -> Self:
        """Go on after a known event: `events()` begins with what came since; raises NotFound."""
        resuming = AsyncSessionClient.resume(
            client.asynchronous, session_id, last_event_id, max_pending=max_pending
        )
        return cls(client, client.loop.run(resuming))

    def prompt(
        self,
        prompt: Prompt,
        *,
        deadline_ms: float | None = None,
        priority: str | None = None,
        on_event: Callable[[SessionEvent], object] | None = None,
    ) -> Turn:
        """Say something and wait for the end of the turn; raises TurnFailed."""
        calls = CallbackQueue()
        prompting = self.asynchronous.prompt(
            prompt, deadline_ms=deadline_ms, priority=priority, on_event=calls.forward(on_event)
        )
        return self._loop.run(prompting, calls)

    def send(
        self, prompt: Prompt, *, deadline_ms: float | None = None, priority: str | None = None
    ) -> SentPrompt:
        """Say something and return as soon as it is accepted; raises PendingPromptLimitError."""
        sending = self.asynchronous.send(prompt, deadline_ms=deadline_ms, priority=priority)
        return SentPrompt(self._loop, self._loop.run(sending))

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield every event of the session from now on, until it is closed."""
        return self._loop.iterate(self.asynchronous.events())

    def cancel(self, prompt_id: str | None = None) -> str | None:
        """End the turn that runs, and return its prompt's id; None where none did."""
        return self._loop.run(self.asynchronous.cancel(prompt_id))

    def remove(self, prompt_id: str) -> bool:
        """Take a prompt out that waits; False where that was done before."""
        return self._loop.run(self.asynchronous.remove(prompt_id))

    def withdraw(self, prompt_id: str) -> None:
        """End a prompt whether it waits or runs; nothing where it has ended."""
        self._loop.run(self.asynchronous.withdraw(prompt_id))

    def pending(self) -> PendingPrompts:
        """Return the prompts that wait or run, whoever sent them."""
        return self._loop.run(self.asynchronous.pending())

    def state(self) -> SessionState:
        """Return the session as the gateway sees it now."""
        return self._loop.run(self.asynchronous.state())

    def messages(self) -> list[Message]:
        """Return what has been said, as it would be sent."""
        return self._loop.run(self.asynchronous.messages())

    def branch(self) -> Self:
        """Make another session with the same history, when the turns before it are done."""
        return type(self)(self._client, self._loop.run(self.asynchronous.branch()))

    @property
    def last_event_id(self) -> int:
        """The last event heard; `resume` goes on after it."""
        return self.asynchronous.last_event_id

    @property
    def pending_here(self) -> int:
        """How many prompts of the session are under way by this client."""
        return self.asynchronous.pending_here

    def close(self, *, delete: bool = False) -> None:
        """Stop listening; waits raise ClientClosed. With `delete` the session itself is ended."""
        self._loop.run(self.asynchronous.close(delete=delete))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
