"""One event loop in a thread of its own, for async handlers.

It is started by the first of them. Revoking a job cancels its handler's `asyncio.Task`; the worker
thread waits until it has unwound. `SystemExit` and `KeyboardInterrupt` in a task would end the loop
and every other handler with it, so they are returned as values.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.jobs.claims import ClaimedJob

UNWIND_S = 0.1
"""What a cancelled handler has to unwind before its loop is closed."""
THREADS_MAX = 32
"""Calls of `asyncio.to_thread` at once: as many as the standard library allows."""


class HandlerLoop:
    """Runs awaitables for threads, which wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._waiting: set[Future[Any]] = set()

    def is_here(self) -> bool:
        """Say whether the caller is on the loop's own thread, and must not block."""
        return self._thread is threading.current_thread()

    def run(self, awaitable: Awaitable[Any], claimed: ClaimedJob) -> Any:
        """Wait for an awaitable; return or raise what it does, CancelledError when revoked."""
        loop = self._started()
        done: Future[Any] = Future()
        with self._lock:
            self._waiting.add(done)

        def begin() -> None:
            task = loop.create_task(_guarded(awaitable))
            task.add_done_callback(lambda ended: _settle(ended, awaitable, done))
            claimed.on_revoke(lambda: _soon(loop, task))

        try:
            loop.call_soon_threadsafe(begin)
            value, error = done.result()
        finally:
            claimed.on_revoke(None)
            with self._lock:
                self._waiting.discard(done)
        if error is not None:
            raise error
        return value

    def stop(self, timeout_s: float) -> None:
        """End the loop and its thread; may be called twice."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():  # else a handler ends its own runner
                thread.join(timeout_s)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="forebay-async", daemon=True
                )
                self._thread.start()
            return self._loop

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
            with self._lock:
                waiting = list(self._waiting)
            for future in waiting:  # the loop is gone: nobody will set them
                with contextlib.suppress(Exception):
                    future.set_result((None, asyncio.CancelledError()))


class DaemonThreads(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread` in handlers, with daemon threads.

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
                future, call = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)


async def _guarded(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error


def _soon(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: so is the task
        loop.call_soon_threadsafe(task.cancel)


def _settle(ended: asyncio.Task[Any], awaitable: Awaitable[Any], done: Future[Any]) -> None:
    if done.done():
        return
    if ended.cancelled():  # before its first step
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        done.set_result((None, asyncio.CancelledError()))
    else:
        done.set_result(ended.result())
