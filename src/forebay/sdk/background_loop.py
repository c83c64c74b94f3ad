"""An event loop in a thread of its own, for those who do not have one.

Everything synchronous is done by the asynchronous client, over there, and waited for here.
Callbacks run here, in the thread that waits: whoever gave one may do in it what they like. Ctrl-C,
or any exception of a callback, ends over there what is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from forebay.sdk.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

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
