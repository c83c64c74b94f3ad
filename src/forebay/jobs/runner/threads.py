"""Daemon threads for what may take long: an event loop in one, and one that handlers block.

The interpreter does not wait for them at its exit, however long a handler takes. `SystemExit` and
`KeyboardInterrupt` in a task would end the loop and every other handler with it, so they are
returned as values.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from forebay.jobs.claims import ClaimedJob

UNWIND_S = 0.1
"""What a cancelled task has to unwind before its loop is closed."""
THREADS_MAX = 32
"""Calls of `asyncio.to_thread` at once: as many as the standard library allows."""


class LoopThread:
    """An event loop in a thread, started by the first to use it; other threads wait for results."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._waiting: set[Future[Any]] = set()

    def is_here(self) -> bool:
        """Say whether the caller is on the loop's own thread, and must not block."""
        return self._thread is threading.current_thread()

    def run(self, awaitable: Awaitable[Any], claimed: ClaimedJob | None = None) -> Any:
        """Wait for an awaitable; return or raise what it does, once it has unwound.

        Raises CancelledError if the loop ends before, or the job is revoked for which it runs.
        """
        try:
            value, error = self._begin(_guarded(awaitable, claimed)).result()
        finally:
            if claimed is not None:
                claimed.on_revoke(None)
            if (
                inspect.iscoroutine(awaitable)
                and inspect.getcoroutinestate(awaitable) == "CORO_CREATED"
            ):
                awaitable.close()  # it never began, and Python would warn of that
        if error is not None:
            raise error
        return value

    def call_soon(self, call: Callable[[], object]) -> None:
        """Make a call on the loop, unless it has not started or has ended."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)

    def stop(self, timeout_s: float) -> None:
        """End the loop and its thread; may be called twice."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._stopped = True
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)  # else a handler ends its own runner

    def _begin(self, coroutine: Coroutine[None, None, Any]) -> Future[Any]:
        with self._lock:
            if self._stopped:
                coroutine.close()
                raise asyncio.CancelledError
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            done = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting.add(done)
            done.add_done_callback(self._waiting.discard)
            return done

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(DaemonThreads())
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=UNWIND_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            for future in list(self._waiting):  # the loop is gone: nobody will set them
                future.cancel()


class HandlerThread:
    """A thread that makes the calls of one coroutine, one after the other."""

    def __init__(self, name: str) -> None:
        """Start it; raises RuntimeError where there can be no more threads."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    async def call(self, work: Callable[[], Any]) -> Any:
        """Return or raise what `work` does."""
        future: Future[Any] = Future()
        self._calls.put((future, work))
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """End it after the call under way."""
        self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            _carry_out(*item)


class DaemonThreads(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`, with threads that end when they have nothing to do.

    The interpreter waits at exit for the threads of the standard executor, however long they take.
    """

    def __init__(self) -> None:
        super().__init__(THREADS_MAX)
        self._free = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._working = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._free:
            self._calls.append((future, partial(call, *args, **named)))
            if self._working < THREADS_MAX:
                self._working += 1
                threading.Thread(target=self._work, name="forebay-to-thread", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._free:
                if not self._calls:
                    self._working -= 1
                    return
                item = self._calls.popleft()
            _carry_out(*item)


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


async def _guarded(
    awaitable: Awaitable[Any], claimed: ClaimedJob | None
) -> tuple[Any, BaseException | None]:
    """Return the result or the exception; cancelled when the job is revoked."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is the task
            loop.call_soon_threadsafe(task.cancel)

    if claimed is not None:
        claimed.on_revoke(interrupt)
    try:
        return await awaitable, None
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error
