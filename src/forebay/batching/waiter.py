"""Threads that sleep until there is something to take: one of them, and all of them in order."""

from collections import deque
from contextlib import suppress
from threading import TIMEOUT_MAX, Lock


class Waiter:
    """A gate that one thread waits at and any thread may open; it shuts behind who goes through.

    Opening waits for nothing, and opening an open gate does nothing, so `wake` may be called from
    anywhere: a token's callback, a signal handler, under any lock.
    """

    __slots__ = ("_gate", "owes_wake_up")

    def __init__(self) -> None:
        self._gate = Lock()
        self._gate.acquire()
        self.owes_wake_up = False  # was woken for a request, and has not looked for one yet

    def wake(self) -> None:
        """Open the gate: `wait` returns, now or the next time it is called."""
        with suppress(RuntimeError):  # it was open
            self._gate.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until woken, at most so long (None: for ever). False when the time is up."""
        if timeout_s is None:
            return self._gate.acquire()
        return self._gate.acquire(timeout=min(max(timeout_s, 0.0), TIMEOUT_MAX))


class Sleepers:
    """The waiters that nobody has woken yet, longest first. The queue's lock guards it."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep: deque[Waiter] = deque()

    def add(self, waiter: Waiter, *, first: bool) -> None:
        """Let a waiter sleep; `first` for one that was woken in vain and is next again."""
        if first:
            self._asleep.appendleft(waiter)
        else:
            self._asleep.append(waiter)

    def discard(self, waiter: Waiter) -> None:
        """Forget a waiter that got up by itself; nothing happens if it was woken."""
        with suppress(ValueError):
            self._asleep.remove(waiter)

    def wake_one(self) -> None:
        """Wake the one that has slept longest, if any: there is a request to look for."""
        if self._asleep:
            waiter = self._asleep.popleft()
            waiter.owes_wake_up = True
            waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody: there is nothing left to wait for."""
        while self._asleep:
            self._asleep.popleft().wake()
