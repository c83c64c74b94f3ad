"""Threads whose results and errors come back to the test, and which never hang it."""

from collections.abc import Callable, Iterable
from threading import Barrier, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

JOIN_S = 30.0
"""After so long a thread counts as stuck; reached only by a failing test."""


class Running(Generic[T]):
    """One call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._errors.append(error)

    def result(self) -> T:
        """Join the thread; return what the call returned, or raise what it raised."""
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "the thread is stuck"
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def run_together(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Start all calls at one instant, each in its thread; return their results in order."""
    calls = list(calls)
    barrier = Barrier(len(calls))

    def at_the_barrier(call: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            barrier.wait(JOIN_S)
            return call()

        return run

    threads = [Running(at_the_barrier(call)) for call in calls]
    return [thread.result() for thread in threads]
