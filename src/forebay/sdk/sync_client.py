"""Synchronous clients: the asynchronous ones, run in a thread.

A method that only waits is made of the asynchronous one by `waited`, which keeps its signature, so
that type checkers and editors see the same arguments; the rest is written out.

The asynchronous client runs in the thread of a `BackgroundLoop`. Callbacks run in the thread that
waits: whoever gave one may do in it what they like. Ctrl-C, or any exception of a callback, ends
over there what is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from concurrent.futures import Future
from functools import partial, wraps
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from forebay.sdk.batches import CHAT_ROUTE, WINDOW, batch_file
from forebay.sdk.client import DEFAULT_URL, AsyncClient
from forebay.sdk.errors import ClientClosed
from forebay.sdk.prompts import MAX_PENDING, AsyncSentPrompt
from forebay.sdk.session_client import AsyncSessionClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from typing import Unpack

    from forebay.api.batches import Batch
    from forebay.api.queue import Queue as QueueState
    from forebay.api.queue import Ticket as Place
    from forebay.sdk.batches import Requests
    from forebay.sdk.client import ClientOptions
    from forebay.sdk.session_client import SessionOptions
    from forebay.sdk.values import (
        BatchResult,
        Piece,
        Prompt,
        SessionEvent,
    )

A_co = TypeVar("A_co", covariant=True)
T = TypeVar("T")
P = ParamSpec("P")


class CallbackQueue:
    """Callbacks on their way from the loop to the thread that waits."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def forward(self, callback: Callable[P, object] | None) -> Callable[P, object] | None:
        """Return something that the loop may call, so that the callback is called here."""
        if callback is None:
            return None

        def pass_on(*args: P.args, **kwargs: P.kwargs) -> None:
            self._waiting.put(partial(callback, *args, **kwargs))

        return pass_on

    def end(self, _: object) -> None:
        self._waiting.put(None)

    def run_all(self) -> None:
        """Make the calls as they come, until the end."""
        while (call := self._waiting.get()) is not None:
            call()


class _Work(Generic[T]):
    """A coroutine over there, and its outcome here."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, T]
    ) -> None:
        self.outcome: Future[T] = Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def refuse(self, error: Exception) -> None:
        """Let it end before it has begun."""
        self._coroutine.close()
        self.outcome.set_exception(error)

    def end(self) -> None:
        """Cancel it and return when it has ended: nothing of it is left then."""
        self._loop.call_soon_threadsafe(self._cancel)
        self.outcome.exception()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.refuse(ClientClosed("it was ended before it began"))

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.set_exception(ClientClosed("the client was closed while it waited"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class BackgroundLoop:
    """Runs coroutines in its own thread; any number of threads may ask it to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_closing = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="forebay-sdk", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[object, object, T], calls: CallbackQueue | None = None) -> T:
        """Return what the coroutine does; raises what it raises, ClientClosed once closed."""
        work = _Work(self._loop, coroutine)
        try:  # from before its beginning: Ctrl-C may come at any moment
            self._begin(work)
            if calls is not None:
                work.outcome.add_done_callback(calls.end)
                calls.run_all()
            return work.outcome.result()
        except BaseException:
            if not work.outcome.done():  # Ctrl-C, or an exception of a callback
                work.end()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield what the asynchronous generator does; leaving early closes it."""
        try:
            while (found := self.run(_next(items))) is not None:
                yield found[0]
        finally:
            with contextlib.suppress(ClientClosed):
                self.run(_closed(items))

    def close(self, last: Coroutine[object, object, None]) -> None:
        """Run this last, end all that is left, and return when the thread has ended."""
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
        if not is_first:
            last.close()
            self._thread.join()
            return
        try:
            self.run(last)
        finally:
            with self._lock:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    # -- inside

    def _begin(self, work: _Work[T]) -> None:
        if threading.current_thread() is self._thread:
            work.refuse(RuntimeError("the synchronous client cannot be used inside its own loop"))
            return
        with self._lock:  # so that it is begun before the loop is told to stop
            if self._is_closed:
                work.refuse(ClientClosed("the client is closed"))
            else:
                work.begin()

    def _run(self) -> None:
        # Ctrl-C must wake the thread that waits, so it may not be told here, nor in any thread
        # that this one starts.
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(_ended(left))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            self._loop.close()


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _closed(items: AsyncGenerator[T, None]) -> None:
    await items.aclose()


async def _ended(tasks: set[asyncio.Task[object]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class _Synchronous(Generic[A_co]):
    """Something asynchronous, and the loop on which it is used."""

    def __init__(self, asynchronous: A_co, loop: BackgroundLoop) -> None:
        self.asynchronous = asynchronous
        """What does the work; to be used on `loop` only."""
        self.loop = loop


def waited(
    method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Synchronous[A_co], P], T]:
    """Return a method that runs this one on the loop, its callbacks in the thread that waits."""

    @wraps(method)
    def wait(self: _Synchronous[A_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        calls = CallbackQueue()
        for name, value in kwargs.items():
            if callable(value):
                kwargs[name] = calls.forward(value)
        return self.loop.run(method(self.asynchronous, *args, **kwargs), calls)

    return wait


class Client(_Synchronous[AsyncClient]):
    """Asks one gateway; any number of threads may use it. A context manager, or `close()` it.

    Each method is that of `AsyncClient`. Callbacks run in the thread that waits, and Ctrl-C ends
    what is waited for.
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(AsyncClient(url, key, **options), BackgroundLoop())

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return self.asynchronous.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every wait, connection and thread of this client; a wait raises ClientClosed."""
        self.loop.close(self.asynchronous.close())

    # -- live requests

    chat = waited(AsyncClient.chat)

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

    prompt = waited(AsyncClient.prompt)

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

    queue_requests = waited(AsyncClient.queue_requests)
    sessions = waited(AsyncClient.sessions)
    models = waited(AsyncClient.models)
    capabilities = waited(AsyncClient.capabilities)
    health = waited(AsyncClient.health)

    # -- jobs

    submit = waited(AsyncClient.submit)
    job = waited(AsyncClient.job)
    jobs = waited(AsyncClient.jobs)
    wait_job = waited(AsyncClient.wait_job)
    cancel_job = waited(AsyncClient.cancel_job)
    retry_job = waited(AsyncClient.retry_job)

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

    batches = waited(AsyncClient.batches)
    batch_state = waited(AsyncClient.batch_state)
    wait_batch = waited(AsyncClient.wait_batch)

    def batch_results(self, batch: Batch) -> Generator[BatchResult, None, None]:
        """Yield what became of each line of a batch that has ended."""
        return self.loop.iterate(self.asynchronous.batch_results(batch))

    cancel_batch = waited(AsyncClient.cancel_batch)
    delete_file = waited(AsyncClient.delete_file)


class SentPrompt(_Synchronous[AsyncSentPrompt]):
    """What `send` returns: the prompt's events as they come, and its result."""

    def __init__(self, sent: AsyncSentPrompt, loop: BackgroundLoop) -> None:
        super().__init__(sent, loop)
        self.prompt_id = sent.prompt_id

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.asynchronous.done

    result = waited(AsyncSentPrompt.result)

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield its events, the terminal one last; for one reader."""
        return self.loop.iterate(self.asynchronous.events())


class SessionClient(_Synchronous[AsyncSessionClient]):
    """One session of a client: `create_or_attach`, `load` or `resume` one, then talk.

    Each method is that of `AsyncSessionClient`.
    """

    def __init__(self, client: Client, session: AsyncSessionClient) -> None:
        super().__init__(session, client.loop)
        self._client = client
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

    prompt = waited(AsyncSessionClient.prompt)

    def send(
        self, prompt: Prompt, *, deadline_ms: float | None = None, priority: str | None = None
    ) -> SentPrompt:
        """Say something and return as soon as it is accepted; raises PendingPromptLimitError."""
        sending = self.asynchronous.send(prompt, deadline_ms=deadline_ms, priority=priority)
        return SentPrompt(self.loop.run(sending), self.loop)

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield every event of the session from now on, until it is closed."""
        return self.loop.iterate(self.asynchronous.events())

    cancel = waited(AsyncSessionClient.cancel)
    remove = waited(AsyncSessionClient.remove)
    withdraw = waited(AsyncSessionClient.withdraw)
    pending = waited(AsyncSessionClient.pending)
    state = waited(AsyncSessionClient.state)
    messages = waited(AsyncSessionClient.messages)

    def branch(self) -> Self:
        """Make another session with the same history, when the turns before it are done."""
        return type(self)(self._client, self.loop.run(self.asynchronous.branch()))

    @property
    def last_event_id(self) -> int:
        """The last event heard; `resume` goes on after it."""
        return self.asynchronous.last_event_id

    @property
    def pending_here(self) -> int:
        """How many prompts of the session are under way by this client."""
        return self.asynchronous.pending_here

    close = waited(AsyncSessionClient.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
