"""Prompts that head their session while there is no room for them: who goes in next.

A prompt that finds the queue full is not refused, it waits here, outside the queue's bounds but
within its limit on waiting. Whoever waits for the same thing stands in one line: for a place in the
queue, for a slot of one model where nothing queues, or for the bound of one key and user. So nobody
is held up by what cannot concern it. A line is tried, the most urgent and then the longest waiting
first, whenever capacity may have come free: a request ended or left the queue, a job gave up its
slot, a node or the settings changed. It is tried until somebody is refused. In the line for the
queue smaller ones behind it are still tried, because one that is too large for `queue.max_bytes`
must not hold them up; those as large are passed over. Should something free capacity without a
word, all lines are tried every NET_S.

Cost: one attempt for each place that becomes free and a few that fail; O(log n) each.
"""

from __future__ import annotations

import asyncio
import sys
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.clock import TimerHandle, Timers
    from forebay.relay.relay import Relay

REFUSALS_MAX, PASSED_MAX = 8, 64
"""How many are tried in vain, or passed over, each time that something comes free."""
NET_S = 5.0

Awaited: TypeAlias = tuple[str, ...]
"""What somebody waits for: a place in the queue, a slot of a model, the bound of a key and user."""
QUEUE: Awaited = ("queue",)


def awaited(code: str, model: str, key: str, user: str) -> Awaited:
    """Return what must come free for a prompt that was refused with this code.

    >>> awaited("queue_full", "m", "k", "u"), awaited("user_queue_full", "m", "k", "u")
    (('queue',), ('bound', 'k', 'u'))
    """
    if code == "queue_full":
        return QUEUE
    return ("bound", key, user) if code == "user_queue_full" else ("slot", model)


class Waiter:
    """One who waits for room."""

    __slots__ = ("order", "retry", "size_bytes")

    def __init__(self, retry: Callable[[], None], order: tuple[int, int], size_bytes: int) -> None:
        self.retry: Callable[[], None] | None = retry
        """None once it has left."""
        self.order = order
        self.size_bytes = size_bytes

    def __lt__(self, other: Waiter) -> bool:
        return self.order < other.order

    def leave(self) -> None:
        """Wait no longer; may be called twice."""
        self.retry = None


class Rooms:
    """All who wait for room, in one gateway."""

    def __init__(self, relay: Relay, clock: Timers) -> None:
        self._relay = relay
        self._clock = clock
        self._lines: dict[Awaited, list[Waiter]] = {}
        self._numbers = count()
        self._due: set[Awaited] = set()
        self._net: TimerHandle | None = None
        self._back: list[tuple[Awaited, Waiter]] | None = None  # refused while a line is tried

    def number(self) -> int:
        """Return the next number of arrival; one that keeps it keeps its place."""
        return next(self._numbers)

    def wait(
        self, retry: Callable[[], None], order: tuple[int, int], what: Awaited, size_bytes: int
    ) -> Waiter:
        """Have `retry` called when there may be room; `order` is the class and a number."""
        waiter = Waiter(retry, order, size_bytes)
        if self._back is not None:
            self._back.append((what, waiter))
        else:
            self._stand(what, waiter)
        return waiter

    def try_all(self) -> None:
        """Try every line: the nodes, the bounds or the keys have changed."""
        self._schedule(self._lines)

    def stop(self) -> None:
        """Try nobody any more."""
        self._lines.clear()
        self._rest()

    def _stand(self, what: Awaited, waiter: Waiter) -> None:
        heappush(self._lines.setdefault(what, []), waiter)
        self._relay.freed = self._freed
        if self._net is None:
            self._net = self._clock.call_at(self._clock.monotonic_s() + NET_S, self._cast_net)

    def _freed(self, key: str, user: str) -> None:
        """Know that something came free, of this key and user if it was a request's."""
        self._schedule(
            what
            for what in self._lines
            if what[0] != "bound" or (key and what[1] == key) or what[2] == user
        )

    def _cast_net(self) -> None:
        self._net = None
        self.try_all()
        if self._lines:
            self._net = self._clock.call_at(self._clock.monotonic_s() + NET_S, self._cast_net)

    def _schedule(self, lines: Iterable[Awaited]) -> None:
        was_due = bool(self._due)
        self._due.update(lines)
        if self._due and not was_due:  # what frees is about to: it is free a moment later
            asyncio.get_running_loop().call_soon(self._try_due)

    def _try_due(self) -> None:
        due, self._due = self._due, set()
        for what in due:
            self._try(what, REFUSALS_MAX if what == QUEUE else 1)
        if not self._lines:
            self._rest()

    def _try(self, what: Awaited, refusals_max: int) -> None:
        line = self._lines.pop(what, [])
        back: list[tuple[Awaited, Waiter]] = []
        self._back = back
        passed: list[Waiter] = []
        smallest = sys.maxsize  # of those refused
        try:
            while line and len(back) < refusals_max and len(passed) < PASSED_MAX:
                waiter, refused = heappop(line), len(back)
                retry = waiter.retry
                if retry is None:
                    continue
                if waiter.size_bytes >= smallest:
                    passed.append(waiter)
                    continue
                waiter.leave()
                retry()  # who finds no room again comes back by `wait`
                if len(back) > refused:
                    smallest = waiter.size_bytes
        finally:
            self._back = None
            for left in (*line, *passed):
                if left.retry is not None:
                    self._stand(what, left)
            for place, waiter in back:
                self._stand(place, waiter)

    def _rest(self) -> None:
        self._relay.freed = None
        if self._net is not None:
            self._net.cancel()
            self._net = None
