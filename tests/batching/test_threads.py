"""Many threads at once lose nothing, double nothing, exceed nothing and get stuck nowhere."""

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Lock, Semaphore

import pytest

from forebay.batching import (
    Cancelled,
    CancelToken,
    DuplicateRequest,
    Priority,
    QueueClosed,
    QueueFull,
    Request,
    RequestQueue,
)
from forebay.batching.line import Line
from forebay.batching.request import Ticket

from .sized import drained, fill, ids, new_queue, sized
from .threads import JOIN_S, Running, run_together

PRODUCERS, EACH = 6, 150


@pytest.fixture(autouse=True)
def _many_switches() -> Iterator[None]:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)


def produce(queue: RequestQueue, producer: int) -> None:
    for number in range(EACH):
        queue.enqueue(sized(f"{producer}-{number}", 1 + number % 5), Priority(number % 4))


EVERYTHING = {f"{producer}-{number}" for producer in range(PRODUCERS) for number in range(EACH)}


class GuardedLine(Line):
    """A line that insists on the queue's lock."""

    lock: Lock

    def add(self, ticket: Ticket) -> None:
        assert self.lock.locked()
        super().add(ticket)

    def pop(self) -> Request | None:
        assert self.lock.locked()
        return super().pop()

    def discard(self, ticket: Ticket) -> bool:
        assert self.lock.locked()
        return super().discard(ticket)

    def drain(self) -> list[Request]:
        assert self.lock.locked()
        return super().drain()

    def take(self, max_count: int, budget: float, min_priority: int = 0) -> list[Request]:
        assert self.lock.locked()
        return super().take(max_count, budget, min_priority)


def test_the_line_is_touched_only_under_the_lock() -> None:
    queue, token = new_queue(), CancelToken()
    line = GuardedLine(max_skips=8)
    line.lock = queue._lock
    queue._line = line
    queue.enqueue(sized("a", cancel=token))
    token.cancel()
    fill(queue, "bcdef")
    assert queue.requeue(queue.dequeue())
    assert queue.try_dequeue(0.001) is not None
    assert ids(queue.get_requests(1, 1)) == ["c"]
    assert queue.remove("d")
    queue.mark_cancelled("e")
    assert ids(queue.clear()) == ["f"]
    assert queue.try_dequeue(0.001) is None
    assert queue.close() == []


def test_a_hundred_enqueues_at_once_lose_nothing() -> None:
    queue = new_queue()
    requests = [sized(str(number)) for number in range(100)]
    run_together([partial(queue.enqueue, request) for request in requests])
    assert len(queue) == 100
    assert sorted(drained(queue)) == sorted(ids(requests))


def test_a_hundred_dequeues_at_once_double_nothing() -> None:
    queue = new_queue()
    names = [str(number) for number in range(100)]
    fill(queue, names)
    delivered = run_together([queue.dequeue for _ in names])
    assert sorted(ids(delivered)) == sorted(names)
    assert queue.is_empty


def test_each_producers_requests_leave_in_its_order() -> None:
    queue = new_queue(capacity=None)

    def produce_in_order(producer: int) -> None:
        fill(queue, (f"{producer}-{number}" for number in range(EACH)))

    run_together([partial(produce_in_order, producer) for producer in range(PRODUCERS)])
    numbers: dict[str, list[int]] = {}
    for id in drained(queue):
        producer, _, number = id.partition("-")
        numbers.setdefault(producer, []).append(int(number))
    assert numbers == {str(producer): list(range(EACH)) for producer in range(PRODUCERS)}


def test_the_bound_is_exact_when_fifty_race_for_ten_places() -> None:
    queue = new_queue(capacity=10)

    def admitted(request: Request) -> bool:
        try:
            queue.enqueue(request)
        except QueueFull:
            return False
        return True

    outcomes = run_together([partial(admitted, sized(str(number))) for number in range(50)])
    assert sum(outcomes) == len(queue) == 10


def test_one_of_twenty_with_the_same_id_gets_in() -> None:
    queue = new_queue()

    def admitted() -> bool:
        try:
            queue.enqueue(sized("a"))
        except DuplicateRequest:
            return False
        return True

    assert sum(run_together([admitted] * 20)) == 1
    assert drained(queue) == ["a"]


def dequeue_until_closed(queue: RequestQueue) -> list[str]:
    delivered = []
    with suppress(QueueClosed):
        while True:
            delivered.append(queue.dequeue().id)
    return delivered


def try_until_closed(queue: RequestQueue) -> list[str]:
    delivered = []
    while not queue.closed:
        request = queue.try_dequeue(0.001)
        if request is not None:
            delivered.append(request.id)
    return delivered


def batch_until_closed(queue: RequestQueue) -> list[str]:
    """Like an engine: wait for one, fill up, put some back."""
    choose = random.Random(4)
    delivered: list[str] = []
    while True:
        try:
            batch = [queue.dequeue()]
        except QueueClosed:
            return delivered
        batch += queue.get_requests(4, 12)
        assert len(batch) <= 5
        assert sum(request.memory_bytes or 0 for request in batch[1:]) <= 12
        delivered += [
            request.id for request in batch if choose.randrange(3) or not put_back(queue, request)
        ]


def put_back(queue: RequestQueue, request: Request) -> bool:
    try:
        return queue.requeue(request)
    except QueueClosed:
        return False


MIXES: dict[str, list[Callable[[RequestQueue], list[str]]]] = {
    "dequeue": [dequeue_until_closed] * 4,
    "try_dequeue": [try_until_closed] * 4,
    "batches": [batch_until_closed] * 4,
    "all": [dequeue_until_closed, try_until_closed, batch_until_closed, batch_until_closed],
}


@pytest.mark.parametrize("mix", MIXES)
def test_everything_enqueued_is_delivered_once(mix: str) -> None:
    queue = new_queue(capacity=None, max_skips=2)
    consuming = [Running(partial(consume, queue)) for consume in MIXES[mix]]
    run_together([partial(produce, queue, producer) for producer in range(PRODUCERS)])
    drainers = [Running(partial(drained, queue)) for _ in range(2)]
    delivered = [id for drainer in drainers for id in drainer.result()]
    left = ids(queue.close())
    for thread in consuming:
        delivered += thread.result()
    assert Counter(delivered + left) == Counter(EVERYTHING)


def test_cancels_and_removes_in_the_middle_of_it_all_lose_and_double_nothing() -> None:
    queue = new_queue(capacity=None)
    tokens = {id: CancelToken() for id in EVERYTHING}
    removed: list[str] = []
    refused: list[str] = []

    def enqueue_some(producer: int) -> None:
        for id in sorted(EVERYTHING)[producer::PRODUCERS]:
            try:
                queue.enqueue(sized(id, cancel=tokens[id]))
            except Cancelled:
                refused.append(id)

    def cancel_some() -> None:
        for id in sorted(EVERYTHING)[::3]:
            tokens[id].cancel()

    def remove_some() -> None:
        removed.extend(filter(queue.remove, sorted(EVERYTHING)[1::3]))

    consuming = [Running(partial(consume, queue)) for consume in MIXES["all"]]
    calls: list[Callable[[], object]] = [cancel_some, cancel_some, remove_some]
    calls += [partial(enqueue_some, producer) for producer in range(PRODUCERS)]
    run_together(calls)
    left = ids(queue.close())
    delivered = [id for thread in consuming for id in thread.result()]
    ended = Counter(delivered + left + removed + refused)
    assert max(ended.values()) == 1
    assert EVERYTHING - set(ended) <= {id for id in EVERYTHING if tokens[id].cancelled}
    assert sum(token.registered for token in tokens.values()) == 0
    assert queue.is_empty


def test_waiters_that_come_and_go_lose_no_wake_up() -> None:
    queue = new_queue(capacity=None)
    arrived = Semaphore(0)

    def change_the_mind(seed: int) -> list[str]:
        choose, delivered = random.Random(seed), []
        for _ in range(60):
            token = CancelToken()
            hasty = Running(token.cancel)
            with suppress(Cancelled):
                request = queue.try_dequeue(choose.choice([math.inf, 1e-6, 1e-4]), token)
                if request is not None:
                    delivered.append(request.id)
                    arrived.release()
            hasty.result()
            assert token.registered == 0
        return delivered

    def stay() -> list[str]:
        delivered = []
        with suppress(QueueClosed):
            while True:
                delivered.append(queue.dequeue().id)
                arrived.release()
        return delivered

    steady = [Running(stay) for _ in range(2)]
    fickle = [Running(partial(change_the_mind, seed)) for seed in range(3)]
    run_together([partial(produce, queue, producer) for producer in range(PRODUCERS)])
    delivered = [id for thread in fickle for id in thread.result()]
    for _ in EVERYTHING:  # a lost wake-up leaves one behind while the steady ones sleep
        assert arrived.acquire(timeout=JOIN_S), "a request waits and everybody sleeps"
    assert queue.close() == []
    delivered += [id for thread in steady for id in thread.result()]
    assert Counter(delivered) == Counter(EVERYTHING)


def test_cancelling_from_everywhere_gets_stuck_nowhere() -> None:
    queue = new_queue(capacity=None)

    def churn(seed: int) -> None:
        choose = random.Random(seed)
        for number in range(60):
            token = CancelToken()
            token.register(lambda: (len(queue), queue.contains("x")))  # takes the queue's lock
            id = f"{seed}-{number}"
            queue.enqueue(sized(id, cancel=token))
            other = Running(token.cancel)
            if choose.randrange(2):
                queue.remove(id)
            else:
                queue.get_requests(1, 1)
            token.cancel()
            other.result()
            assert token.registered == 0

    run_together([partial(churn, seed) for seed in range(4)])
    assert queue.is_empty
