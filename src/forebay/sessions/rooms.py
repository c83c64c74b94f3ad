"""Prompts that head their session while the one queue has no room: who goes in next.

A prompt that finds the queue full is not refused, it waits here, outside the queue's bounds but
within its limit on waiting. Nobody polls: when an exchange ends, which is the only way for room to
appear, those who wait are tried, the most urgent and then the longest waiting first, until one
finds no room again. Whoever is kept out by a bound of its own user or key stands in a line of its
own and is tried when something of that user or key ends, so that it holds up nobody else.

Cost: one attempt for each place that becomes free, and one that fails; O(log n) each.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay

EVERYBODY = ("", "")


def bound_of(key: str, user: str) -> tuple[str, str]:
    """Return the line of those whom the same bound may keep out: a key's, else a user's."""
    return (key, "") if key else ("", user)


class Waiter:
    """One who waits for room."""

    __slots__ = ("order", "retry")

    def __init__(self, retry: Callable[[], None], order: tuple[int, int]) -> None:
        self.retry: Callable[[], None] | None = retry
        """None once it has left."""
        self.order = order

    def __lt__(self, other: Waiter) -> bool:
        return self.order < other.order

    def leave(self) -> None:
        """Wait no longer; may be called twice."""
        self.retry = None


class Rooms:
    """All who wait for room, in one gateway."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._lines: dict[tuple[str, str], list[Waiter]] = {}
        self._numbers = count()
        self._scheduled: set[tuple[str, str]] = set()
        self._refused = False

    def number(self) -> int:
        """Return the next number of arrival; one that keeps it keeps its place."""
        return next(self._numbers)

    def wait(
        self, retry: Callable[[], None], order: tuple[int, int], whose: tuple[str, str] = EVERYBODY
    ) -> Waiter:
        """Have `retry` called when there may be room; `order` is the class and a number."""
        waiter = Waiter(retry, order)
        heappush(self._lines.setdefault(whose, []), waiter)
        self._relay.left = self._left
        self._refused = True
        return waiter

    def try_all(self) -> None:
        """Try every line: the bounds have changed."""
        for whose in list(self._lines):
            self._schedule(whose)

    def _left(self, exchange: Exchange) -> None:
        """Know that an exchange is about to end: what it held is free a moment later."""
        call = exchange.call
        for whose in (EVERYBODY, bound_of(call.key, call.user)):
            if whose in self._lines:
                self._schedule(whose)

    def _schedule(self, whose: tuple[str, str]) -> None:
        if whose not in self._scheduled:
            self._scheduled.add(whose)
            asyncio.get_running_loop().call_soon(self._try, whose)

    def _try(self, whose: tuple[str, str]) -> None:
        self._scheduled.discard(whose)
        line = self._lines.get(whose, [])
        while line:
            waiter = heappop(line)
            retry = waiter.retry
            if retry is None:
                continue
            waiter.leave()
            self._refused = False
            retry()  # who finds no room again comes back by `wait`
            if self._refused:
                break
        if not line:
            self._lines.pop(whose, None)
        if not self._lines:
            self._relay.left = None
