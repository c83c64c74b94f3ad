"""The library queue beside `queue.PriorityQueue`: the same work, one thread, turn and turn about.

`PriorityQueue` is what people would use otherwise. It keeps the order and can wait; it knows no
bound by memory, no cancelling, no removing, no ids. The estimator is constant on both sides:
tokenizing is not the queue's work. Each figure is the best of `repeats` rounds, and the two take
turns within each round, so that a noisy neighbour meets both.
"""

from queue import PriorityQueue
from time import perf_counter

from bench.core.comparison import Row, compare
from forebay.batching import CancelToken, Priority, Request, RequestQueue

OPERATIONS = 5_000
BATCH = 64
Item = tuple[int, int, Request]


def measure(repeats: int) -> list[Row]:
    """Measure all, and return one row each: microseconds per operation, and ours / reference."""
    rows = [put_and_get(depth, repeats, tokens=False) for depth in (0, 100, 10_000)]
    rows.append(put_and_get(100, repeats, tokens=True))
    rows.append(take_a_batch(repeats))
    rows.append(take_a_batch_past_big_ones(repeats))
    return rows


def put_and_get(depth: int, repeats: int, *, tokens: bool) -> Row:
    """One enqueue and one dequeue, while `depth` others wait."""

    def ours() -> float:
        queue = new_queue()
        for request in new_requests("waiting", depth):
            queue.enqueue(request, priority_of(request))
        requests = [(r, priority_of(r)) for r in new_requests("new", OPERATIONS, tokens=tokens)]
        enqueue, dequeue = queue.enqueue, queue.dequeue
        start_s = perf_counter()
        for request, priority in requests:
            enqueue(request, priority)
            dequeue()
        return (perf_counter() - start_s) / OPERATIONS

    def reference() -> float:
        queue: PriorityQueue[Item] = PriorityQueue()
        for number, request in enumerate(new_requests("waiting", depth)):
            queue.put((-priority_of(request), number, request))
        requests = [(r, -priority_of(r)) for r in new_requests("new", OPERATIONS)]
        put, get = queue.put, queue.get
        start_s = perf_counter()
        for number, (request, rank) in enumerate(requests, depth):
            put((rank, number, request))
            get()
        return (perf_counter() - start_s) / OPERATIONS

    name = f"enqueue + dequeue, {depth:,} waiting" + (", with a cancel token" if tokens else "")
    return compare(name, ours, reference, repeats, target="5 x")


def take_a_batch(repeats: int) -> Row:
    """One `get_requests(64)` of 10,000, beside 64 times `get`."""
    return compare(
        f"get_requests({BATCH}), 10,000 waiting",
        lambda: one_batch(0),
        sixty_four_gets,
        repeats,
        "one pass",
    )


def take_a_batch_past_big_ones(repeats: int) -> Row:
    """The same, with 64 requests in the way that do not fit, beside the same 64 times `get`."""
    return compare(
        f"get_requests({BATCH}) past {BATCH} too big, 10,000 waiting",
        lambda: one_batch(BATCH),
        sixty_four_gets,
        repeats,
    )


def one_batch(too_big: int) -> float:
    queue = new_queue()
    for number, request in enumerate(new_requests("waiting", 10_000)):
        request.max_tokens = 1_000 if number < too_big else 1
        queue.enqueue(request)
    start_s = perf_counter()
    batch = queue.get_requests(BATCH, memory_budget=BATCH)
    spent_s = perf_counter() - start_s
    assert len(batch) == BATCH
    return spent_s


def sixty_four_gets() -> float:
    queue: PriorityQueue[Item] = PriorityQueue()
    for number, request in enumerate(new_requests("waiting", 10_000)):
        queue.put((0, number, request))
    start_s = perf_counter()
    batch = [queue.get() for _ in range(BATCH)]
    spent_s = perf_counter() - start_s
    assert len(batch) == BATCH
    return spent_s


def new_queue() -> RequestQueue:
    return RequestQueue(capacity=None, estimator=lambda request: request.max_tokens)


def new_requests(prefix: str, count: int, *, tokens: bool = False) -> list[Request]:
    return [
        Request(f"{prefix}-{number}", "", 1, CancelToken() if tokens else None)
        for number in range(count)
    ]


def priority_of(request: Request) -> Priority:
    """One of the four, spread evenly."""
    return Priority(int(request.id.rpartition("-")[2]) % 4)
