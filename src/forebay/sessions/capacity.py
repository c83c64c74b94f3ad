"""Turns that wait for capacity: which of them is submitted next.

A turn that finds the queue full is not rejected, it waits here, outside the queue's bounds but
within its limit on waiting. Turns that wait for the same resource share a heap: a place in the
queue, a slot of one model where nothing queues, or the bound of one key and user. So nobody is
delayed by what cannot concern it. A heap is tried, the most urgent and then the longest waiting
first, whenever capacity may have come free: a request ended or left the queue, a job gave up its
slot, a node or the settings changed. It is tried until a turn is rejected. For places in the queue,
smaller turns behind a rejected one are still tried, because one that is too large for
`queue.max_bytes` must not block them; those as large are skipped. In case capacity comes free
without a notification, everything is tried every POLL_S.

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

REJECTIONS_MAX, SKIPPED_MAX = 8, 64
"""How many are tried in vain, or skipped, each time that capacity comes free."""
POLL_S = 5.0

Resource: TypeAlias = tuple[str, ...]
"""What a turn waits for: a place in the queue, a slot of a model, the bound of a key and user."""
QUEUE: Resource = ("queue",)


def resource_of(code: str, model: str, key: str, user: str) -> Resource:
    """Return what must come free for a turn that was rejected with this code.

    >>> resource_of("queue_full", "m", "k", "u"), resource_of("user_queue_full", "m", "k", "u")
    (('queue',), ('bound', 'k', 'u'))
    """
    if code == "queue_full":
        return QUEUE
    return ("bound", key, user) if code == "user_queue_full" else ("slot", model)


class CapacityWaiter:
    """One turn that waits."""

    __slots__ = ("order", "retry", "size_bytes")

    def __init__(self, retry: Callable[[], None], order: tuple[int, int], size_bytes: int) -> None:
        self.retry: Callable[[], None] | None = retry
        """None once it has left."""
        self.order = order
        self.size_bytes = size_bytes

    def __lt__(self, other: CapacityWaiter) -> bool:
        return self.order < other.order

    def leave(self) -> None:
        """Stop waiting; may be called twice."""
        self.retry = None


class CapacityWaiters:
    """All turns of a gateway that wait for capacity."""

    def __init__(self, relay: Relay, clock: Timers) -> None:
        self._relay = relay
        self._clock = clock
        self._heaps: dict[Resource, list[CapacityWaiter]] = {}
        self._numbers = count()
        self._due: set[Resource] = set()
        self._poll: TimerHandle | None = None
        # Turns that were rejected again, while a heap is tried.
        self._rejected: list[tuple[Resource, CapacityWaiter]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._heaps

    def next_number(self) -> int:
        """Return the next number of arrival; a turn that keeps it keeps its place."""
        return next(self._numbers)

    def wait(
        self,
        retry: Callable[[], None],
        order: tuple[int, int],
        resource: Resource,
        size_bytes: int,
    ) -> CapacityWaiter:
        """Call `retry` when there may be capacity; `order` is the class's rank and a number."""
        waiter = CapacityWaiter(retry, order, size_bytes)
        if self._rejected is not None:
            self._rejected.append((resource, waiter))
        else:
            self._push(resource, waiter)
        return waiter

    def try_all(self) -> None:
        """Try every heap: the nodes, the bounds or the keys have changed."""
        self._schedule(self._heaps)

    def stop(self) -> None:
        self._heaps.clear()
        self._unsubscribe()

    def _push(self, resource: Resource, waiter: CapacityWaiter) -> None:
        heappush(self._heaps.setdefault(resource, []), waiter)
        self._relay.freed = self._on_freed
        if self._poll is None:
            self._arm_poll()

    def _on_freed(self, key: str, user: str) -> None:
        """Try those whom the end of something concerns; of this key and user if it was a request's.

        A bound is freed only by requests of the same key, or of the same user.
        """
        self._schedule(
            resource
            for resource in self._heaps
            if resource[0] != "bound" or (key and resource[1] == key) or resource[2] == user
        )

    def _arm_poll(self) -> None:
        self._poll = self._clock.call_at(self._clock.monotonic_s() + POLL_S, self._on_poll)

    def _on_poll(self) -> None:
        self._poll = None
        self.try_all()
        if self._heaps:
            self._arm_poll()

    def _schedule(self, resources: Iterable[Resource]) -> None:
        was_due = bool(self._due)
        self._due.update(resources)
        if self._due and not was_due:  # the capacity is free only after the present callback
            asyncio.get_running_loop().call_soon(self._try_due)

    def _try_due(self) -> None:
        due, self._due = self._due, set()
        for resource in due:
            self._try(resource, REJECTIONS_MAX if resource == QUEUE else 1)
        if not self._heaps:
            self._unsubscribe()

    def _try(self, resource: Resource, rejections_max: int) -> None:
        heap = self._heaps.pop(resource, [])
        rejected: list[tuple[Resource, CapacityWaiter]] = []
        self._rejected = rejected
        skipped: list[CapacityWaiter] = []
        smallest = sys.maxsize  # of those rejected
        try:
            while heap and len(rejected) < rejections_max and len(skipped) < SKIPPED_MAX:
                waiter, before = heappop(heap), len(rejected)
                retry = waiter.retry
                if retry is None:
                    continue
                if waiter.size_bytes >= smallest:
                    skipped.append(waiter)
                    continue
                waiter.leave()
                retry()  # a turn that is rejected again comes back through `wait`
                if len(rejected) > before:
                    smallest = waiter.size_bytes
        finally:
            self._rejected = None
            for left in (*heap, *skipped):
                if left.retry is not None:
                    self._push(resource, left)
            for again, waiter in rejected:
                self._push(again, waiter)

    def _unsubscribe(self) -> None:
        self._relay.freed = None
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
