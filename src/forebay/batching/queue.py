"""The thread-safe queue, with blocking operations.

One lock guards the line (`line.py`: the order, the batch, the reservation), and one list holds the
threads that sleep because it is empty. There is no semaphore: what could be taken is what is in
the line, so the two cannot drift apart.

Who is woken. Each request that joins wakes exactly one sleeper, the one that has slept longest,
and that one looks for itself: it may find a more urgent request that came meanwhile, or nothing,
because another thread was quicker; then it sleeps on, again the first to be woken. A wake-up is
used by looking. A sleeper that leaves without having looked (cancelled, interrupted, timed out
in the instant it was woken) owes the wake-up to the next one. So a request never waits while
everybody sleeps: if anyone sleeps, there are at least as many woken threads on their way as
there are requests.

Why it cannot deadlock. A token has no lock, and what the queue registers with one takes none: it
notes the ticket in a deque (an atomic step) and tries the lock without waiting. If somebody has
the lock, be it this very thread, interrupted, then the note is read by the next one who takes
it, before anything else is done. So after `cancel()` has returned nobody sees the request. The
estimator, the clock and whatever else is not ours are called without the lock. (The methods of
the queue do wait for the lock, so from a signal handler or a finaliser call only `cancel()`.)
"""

from __future__ import annotations

import math
import operator
from collections import deque
from contextlib import suppress
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING, Literal, Self

from forebay.batching.checks import at_least, seconds
from forebay.batching.errors import (
    Cancelled,
    DuplicateRequest,
    NotTaken,
    QueueClosed,
    QueueFull,
    RequestTooLarge,
)
from forebay.batching.line import Line
from forebay.batching.memory import Estimator, default_estimator
from forebay.batching.request import Priority, Ticket
from forebay.clock import Clock, SystemClock

if TYPE_CHECKING:
    from forebay.batching.cancel import CancelToken
    from forebay.batching.request import Request

FAIRNESS = ("fifo", "round_robin")
WAIT_CANCELLED = "the wait for a request was cancelled"


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


class RequestQueue:
    """A bounded priority queue of requests, for the loop of a continuous-batching engine.

    Any method may be called from any thread. A request that was removed or cancelled is never
    delivered and not counted, and nothing of it stays registered with its token.

    >>> from forebay.batching import Priority, Request, RequestQueue
    >>> queue = RequestQueue(capacity=3, estimator=lambda request: request.max_tokens)
    >>> queue.enqueue(Request("a", "Why?", max_tokens=60))
    >>> queue.enqueue(Request("b", "How?", max_tokens=50))
    >>> queue.enqueue(Request("c", "Now!", max_tokens=30), Priority.URGENT)
    >>> queue.enqueue(Request("d", "And?"))
    Traceback (most recent call last):
    forebay.batching.errors.QueueFull: request 'd' refused: 3 of 3 places are taken

    A batch is taken in order, as far as it fits; `a` is too big for what `c` has left:

    >>> [request.id for request in queue.get_requests(max_count=8, memory_budget=80)]
    ['c', 'b']

    What could not be run after all goes back to its old place:

    >>> queue.enqueue(Request("e", "Well?", max_tokens=10))
    >>> first = queue.dequeue()
    >>> queue.requeue(first)
    True
    >>> [request.id for request in queue.get_requests(max_count=8, memory_budget=80)]
    ['a', 'e']
    """

    def __init__(
        self,
        capacity: int | None = 100,
        estimator: Estimator = default_estimator,
        memory_limit: int | None = None,
        max_skips: int = 8,
        clock: Clock | None = None,
        fairness: Literal["fifo", "round_robin"] = "fifo",
    ) -> None:
        """Make an empty queue.

        `capacity`: how many may wait; None for no bound. 100 is a few batches: more is better
        refused while the client can still go elsewhere.
        `estimator`: bytes a request needs; called once, at `enqueue`, outside the lock.
        `memory_limit`: bytes the engine has at most; a larger request is refused at `enqueue`.
        `max_skips`: calls of `get_requests` that may pass over a request too big for the rest
        before memory is reserved for it; 0 for strict order. 8 lets small ones fill gaps, yet is
        soon over: an engine makes a call every few milliseconds.
        `clock`: read for `Request.enqueued_s`, and for how much of a timeout is left.
        `fairness`: within a priority, `fifo` by arrival, `round_robin` evenly between the users
        that wait, by size (see `forebay.batching.order`).
        """
        self._capacity: float = math.inf if capacity is None else at_least(1, "capacity", capacity)
        self._estimator = estimator
        if memory_limit is not None:
            at_least(1, "memory_limit", memory_limit)
        self._memory_limit = memory_limit
        self._clock = SystemClock() if clock is None else clock
        self._lock = Lock()
        if fairness not in FAIRNESS:
            raise ValueError(f"fairness must be one of {', '.join(FAIRNESS)}, not {fairness!r}")
        fair = fairness == "round_robin"
        self._line = Line(at_least(0, "max_skips", max_skips), memory_limit, fair=fair)
        self._sleepers = Sleepers()
        self._withdrawn: deque[Ticket] = deque()  # cancelled, and still to be taken out
        self._sequence = 0
        self._closed = False
        self._issuer = object()

    def __len__(self) -> int:
        """Return how many wait."""
        if self._withdrawn:
            with self._lock:
                self._bury_locked()
        return len(self._line.waiting)

    @property
    def is_empty(self) -> bool:
        """Say whether nobody waits."""
        return len(self) == 0

    @property
    def next_priority(self) -> Priority | None:
        """The priority of the request that is next, None if nobody waits."""
        with self._lock:
            self._bury_locked()
            priority = self._line.next_priority()
        return None if priority is None else Priority(priority)

    @property
    def closed(self) -> bool:
        """Say whether `close` has been called."""
        return self._closed

    def contains(self, id: str) -> bool:
        """Say whether a request with this id waits."""
        with self._lock:
            self._bury_locked()
            return id in self._line.waiting

    def enqueue(self, request: Request, priority: Priority = Priority.NORMAL) -> None:
        """Put a request behind the last of its priority, and wake one waiting thread.

        Raises `QueueClosed`, `Cancelled` (its token is cancelled already), `DuplicateRequest`,
        `QueueFull` or `RequestTooLarge`; then nothing has changed. Nobody waits for room.
        """
        if priority.__class__ is not Priority:
            priority = Priority(priority)
        with self._lock:
            self._admit_locked(request)  # refuse early: tokenizing for nothing is dear
        ticket = Ticket(self._issuer, request, priority, self._measure(request))
        ticket.enqueued_s = self._clock.monotonic_s()
        with self._lock:
            self._admit_locked(request)
            ticket.sequence = self._sequence = self._sequence + 1
            self._join_locked(ticket, request)

    def requeue(self, request: Request) -> bool:
        """Put a request that was taken back into its old place, and wake one waiting thread.

        It keeps its priority, its place among its equals, its estimate and the times it was
        passed over. Never refused for want of room: losing what was accepted is worse than
        exceeding `capacity` by what is in the engine's hands. Returns False, and drops it, if its
        token was cancelled meanwhile, just as if that had happened a moment later.

        Raises `NotTaken` if it was not taken from this queue (never seen, removed, cancelled or
        cleared while it waited), `DuplicateRequest` if it, or another with its id, waits already,
        and `QueueClosed`.
        """
        with self._lock:
            self._bury_locked()
            self._check_open()
            ticket = request._ticket
            if ticket is None or ticket.issuer is not self._issuer:
                raise NotTaken(f"request {request.id!r} was not taken from this queue; enqueue it")
            self._check_unique(ticket.id)
            try:
                self._join_locked(ticket, request)
            except Cancelled:
                request._ticket = None
                return False
            return True

    def dequeue(self, cancel: CancelToken | None = None) -> Request:
        """Take the first request; wait for one if there is none.

        Raises `Cancelled` once `cancel` is cancelled, even if requests wait (they stay), and
        `QueueClosed` once the queue is closed.
        """
        request = self._next(cancel, None)
        if request is None:
            raise QueueClosed("the queue was closed")
        return request

    def try_dequeue(self, timeout: float, cancel: CancelToken | None = None) -> Request | None:
        """Take the first request; wait for one at most `timeout` seconds.

        Returns None when the time is up or the queue closed (`closed` tells which). Zero does not
        wait; less than zero is as zero, being what is left of a deadline that has passed;
        infinity waits like `dequeue`. Raises `Cancelled` as `dequeue` does, and `ValueError` if
        `timeout` is not a number.
        """
        timeout_s = seconds("timeout", timeout)
        return self._next(cancel, None if timeout_s == math.inf else timeout_s)

    def get_requests(
        self, max_count: int, memory_budget: float, min_priority: Priority = Priority.LOW
    ) -> list[Request]:
        """Take the next batch: at most so many requests, of at most so many bytes together.

        In order; a request too big for what is left is passed over, at most `max_skips` times,
        then memory is reserved for it (see `forebay.batching.line`). Never waits: the list is
        empty if nothing fits, nobody waits or the queue is closed. `Request.memory_bytes` is what
        each was counted with. Those of a lower priority than `min_priority` are left waiting.
        """
        at_least(0, "max_count", max_count)
        if not memory_budget >= 0:
            raise ValueError(f"memory_budget must be at least 0, not {memory_budget}")
        with self._lock:
            self._bury_locked()
            return self._line.take(max_count, memory_budget, min_priority)

    def remove(self, id: str) -> bool:
        """Take a request out of the queue; it is not delivered. False if no such one waits."""
        with self._lock:
            self._bury_locked()
            ticket = self._line.waiting.get(id)
            return ticket is not None and self._line.discard(ticket)

    def mark_cancelled(self, id: str) -> None:
        """Take a request out because it was cancelled by other means than its token.

        The token is not touched (it may be shared with other requests), and an id that does not
        wait is nothing to complain about: it may have been taken a moment ago.
        """
        self.remove(id)

    def clear(self) -> list[Request]:
        """Take all requests out, and return them in order, so that each can be answered."""
        with self._lock:
            self._bury_locked()
            return self._line.drain()

    def close(self) -> list[Request]:
        """Close for good, wake every waiting thread, and return the requests that were left.

        They are out of the queue and in order: answer them. May be called again; the list is
        then empty. From now on `dequeue`, `enqueue` and `requeue` raise `QueueClosed`,
        `try_dequeue` returns None and `get_requests` an empty list.
        """
        with self._lock:
            self._bury_locked()
            self._closed = True
            self._sleepers.wake_all()
            return self._line.drain()

    def __enter__(self) -> Self:
        """Return the queue; it is closed on the way out."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure(self, request: Request) -> int:
        estimate = self._estimator(request)
        try:
            memory_bytes = operator.index(estimate)
        except TypeError as error:
            raise TypeError(
                f"estimator must return whole bytes, not {estimate!r} (request {request.id!r})"
            ) from error
        if memory_bytes < 0:
            raise ValueError(
                f"estimator must not return less than 0 bytes, as {memory_bytes}"
                f" (request {request.id!r})"
            )
        if self._memory_limit is not None and memory_bytes > self._memory_limit:
            raise RequestTooLarge(
                f"request {request.id!r} refused: it needs {memory_bytes} bytes,"
                f" and memory_limit is {self._memory_limit}"
            )
        return memory_bytes

    def _check_open(self) -> None:
        if self._closed:
            raise QueueClosed("the queue was closed")

    def _check_unique(self, id: str) -> None:
        if id in self._line.waiting:
            raise DuplicateRequest(
                f"request {id!r} refused: a request with this id is already waiting"
            )

    def _admit_locked(self, request: Request) -> None:
        """Raise what speaks against enqueuing; what it needs to know is exact under the lock."""
        self._bury_locked()
        self._check_open()
        if request.cancel is not None and request.cancel.cancelled:
            raise Cancelled(f"request {request.id!r} was cancelled before it could wait")
        self._check_unique(request.id)
        ticket = request._ticket
        if ticket is not None and ticket.request is not None:
            raise DuplicateRequest(f"request {request.id!r} refused: it waits in another queue")
        waiting = len(self._line.waiting)
        if waiting >= self._capacity:
            raise QueueFull(
                f"request {request.id!r} refused: {waiting} of {self._capacity} places are taken"
            )

    def _join_locked(self, ticket: Ticket, request: Request) -> None:
        ticket.join(request, self._withdraw)
        self._line.add(ticket)
        self._sleepers.wake_one()

    def _withdraw(self, ticket: Ticket) -> None:
        """Take a cancelled ticket out: what tokens call. Never waits; see the top of the module."""
        self._withdrawn.append(ticket)
        if self._lock.acquire(blocking=False):
            try:
                self._bury_locked()
            finally:
                self._lock.release()

    def _bury_locked(self) -> None:
        """Take those out whose tokens were cancelled; the first thing done under the lock."""
        while self._withdrawn:
            self._line.discard(self._withdrawn.popleft())

    def _next(self, cancel: CancelToken | None, timeout_s: float | None) -> Request | None:
        """Take the first request, waiting for one; None when the time is up or on close."""
        if cancel is not None and cancel.cancelled:
            raise Cancelled(WAIT_CANCELLED)
        with self._lock:
            self._bury_locked()
            request = self._line.pop()
        if request is not None or (timeout_s is not None and timeout_s <= 0):
            return request
        waiter = Waiter()
        registration = None
        try:
            if cancel is not None:
                registration = cancel.register(waiter.wake)
            return self._wait(waiter, cancel, timeout_s)
        finally:
            if cancel is not None:
                cancel.unregister(registration)
            with self._lock:
                self._sleepers.discard(waiter)
                if waiter.owes_wake_up and self._line.waiting:
                    self._sleepers.wake_one()

    def _wait(
        self, waiter: Waiter, cancel: CancelToken | None, timeout_s: float | None
    ) -> Request | None:
        deadline_s = math.inf if timeout_s is None else self._clock.monotonic_s() + timeout_s
        first, in_time = False, True
        while True:
            with self._lock:
                self._bury_locked()
                self._sleepers.discard(waiter)
                if cancel is not None and cancel.cancelled:
                    raise Cancelled(WAIT_CANCELLED)
                request = self._line.pop()
                waiter.owes_wake_up = False
                if request is not None or self._closed or not in_time:
                    return request
                self._sleepers.add(waiter, first=first)
            first = True
            in_time = waiter.wait(timeout_s)
            if timeout_s is not None:
                timeout_s = deadline_s - self._clock.monotonic_s()
