"""Requests whose size is plain to see: `max_tokens` is the number of bytes."""

from collections.abc import Iterable
from typing import Literal

from forebay.batching import CancelToken, Priority, Request, RequestQueue
from forebay.clock import Clock


def sized(id: str, size: int = 1, cancel: CancelToken | None = None, user: str = "") -> Request:
    return Request(id, "a prompt", max_tokens=size, cancel=cancel, user=user)


def new_queue(
    capacity: int | None = 100,
    memory_limit: int | None = None,
    max_skips: int = 8,
    clock: Clock | None = None,
    fairness: Literal["fifo", "round_robin"] = "fifo",
) -> RequestQueue:
    return RequestQueue(
        capacity=capacity,
        estimator=lambda request: request.max_tokens,
        memory_limit=memory_limit,
        max_skips=max_skips,
        clock=clock,
        fairness=fairness,
    )


def fill(queue: RequestQueue, ids: Iterable[str], priority: Priority = Priority.NORMAL) -> None:
    for id in ids:
        queue.enqueue(sized(id), priority)


def ids(requests: Iterable[Request]) -> list[str]:
    return [request.id for request in requests]


def drained(queue: RequestQueue) -> list[str]:
    """Dequeue until nothing is left."""
    delivered = []
    while (request := queue.try_dequeue(0)) is not None:
        delivered.append(request.id)
    return delivered
