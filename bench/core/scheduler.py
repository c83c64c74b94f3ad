"""The scheduler core beside a bare `heapq` that does the same number of pushes and pops.

The heap knows no users, classes, bounds, deadlines, leases or estimates: it is the floor, not a
rival. Each figure is the best of `repeats` rounds in which the two take turns, so that a noisy
neighbour meets both. Ids and events are made before the clock starts.
"""

import heapq
from collections.abc import Callable
from time import perf_counter

from bench.core.comparison import Row, compare
from forebay.core import Arrived, Cancelled, Finished, NodeChanged, Options, Scheduler

BATCH = 256
"""Operations in a round: a few milliseconds, so that some rounds meet no noise."""
DEPTH_BATCH = 64
NODE = NodeChanged("gpu1", slots=1, models=("llama",))
OPTIONS = Options(max_size=10_000_000, wait_s_max=3600.0)


def measure(repeats: int) -> list[Row]:
    """Measure all, and return one row each: microseconds per operation, and ours / heapq."""
    rows = [arrive_and_route(repeats), finish_and_dispatch(repeats)]
    rows.append(enqueue_and_dispatch(10_000, 1_000, "round_robin", repeats, "20 µs"))
    rows.append(enqueue_and_dispatch(10_000, 1_000, "tokens", repeats, "20 µs"))
    rows += [
        enqueue_and_dispatch(depth, depth // 10, "round_robin", repeats)
        for depth in (1_000, 100_000, 1_000_000)
    ]
    rows += [  # where the exact place in line looks at every user
        enqueue_and_dispatch(depth, depth, "round_robin", repeats) for depth in (100, 900)
    ]
    rows += [reject(depth, repeats) for depth in (1_000, 1_000_000)]
    rows += [cancel(depth, repeats) for depth in (1_000, 1_000_000)]
    return rows


def filled(depth: int, users: int, options: Options) -> tuple[Scheduler, str]:
    """Return a scheduler with one entry running and `depth` waiting, and the id that runs."""
    scheduler = Scheduler(options)
    scheduler.handle(NODE, 0.0)
    scheduler.handle(Arrived("first", "llama", user="u0"), 0.0)
    for number in range(depth):
        event = Arrived(f"w{number}", "llama", user=f"u{number % users}", prompt_tokens=100)
        scheduler.handle(event, 0.0)
    return scheduler, "first"


def heap_of(depth: int) -> list[tuple[int, int]]:
    heap = [(number, number) for number in range(depth)]
    heapq.heapify(heap)
    return heap


def push_and_pop(depth: int) -> Callable[[], float]:
    """Time one push and one pop on a heap of that depth, turn and turn about."""
    heap = heap_of(depth)
    numbers = iter(range(depth, 1 << 60))

    def reference() -> float:
        items = [(number, number) for _, number in zip(range(BATCH), numbers, strict=False)]
        start_s = perf_counter()
        for item in items:
            heapq.heappush(heap, item)
            heapq.heappop(heap)
        return (perf_counter() - start_s) / BATCH

    return reference


def arrive_and_route(repeats: int) -> Row:
    """An arrival that finds a free slot and nobody waiting."""

    def ours() -> float:
        scheduler = Scheduler()
        scheduler.handle(NodeChanged("gpu1", slots=10 * BATCH, models=("llama",)), 0.0)
        events = [Arrived(f"r{number}", "llama", user="u") for number in range(BATCH)]
        handle = scheduler.handle
        start_s = perf_counter()
        for event in events:
            handle(event, 1.0)
        return (perf_counter() - start_s) / BATCH

    return compare("arrive + route, empty queue", ours, push_and_pop(0), repeats, target="5 µs")


def finish_and_dispatch(repeats: int) -> Row:
    """A slot is freed while 64 wait, and the next one starts; the depth is kept near 64."""
    scheduler, running = filled(DEPTH_BATCH, 16, OPTIONS)
    count = 0

    def ours() -> float:
        nonlocal running, count
        handle, spent_s = scheduler.handle, 0.0
        for _ in range(BATCH // DEPTH_BATCH):
            for number in range(DEPTH_BATCH):
                handle(Arrived(f"n{count + number}", "llama", user=f"u{number % 16}"), 1.0)
            count += DEPTH_BATCH
            start_s = perf_counter()
            for _ in range(DEPTH_BATCH):
                running = handle(Finished(running), 1.0)[0].id  # type: ignore[union-attr] # a Route
            spent_s += perf_counter() - start_s
        return spent_s / (BATCH // DEPTH_BATCH * DEPTH_BATCH)

    return compare(
        "finish + dispatch, 64 waiting", ours, push_and_pop(DEPTH_BATCH), repeats, target="10 µs"
    )


def enqueue_and_dispatch(
    depth: int, users: int, fairness: str, repeats: int, target: str = ""
) -> Row:
    """One arrival that must wait and one finish that starts another, while `depth` wait."""
    options = Options(max_size=OPTIONS.max_size, wait_s_max=3600.0, fairness=fairness)  # type: ignore[arg-type]
    scheduler, running = filled(depth, users, options)
    count = 0

    def ours() -> float:
        nonlocal running, count
        handle = scheduler.handle
        events = [
            Arrived(f"n{count + n}", "llama", user=f"u{n * 7 % users}", prompt_tokens=100)
            for n in range(BATCH)
        ]
        count += BATCH
        start_s = perf_counter()
        for event in events:
            handle(event, 1.0)
            running = handle(Finished(running), 1.0)[0].id  # type: ignore[union-attr] # a Route
        return (perf_counter() - start_s) / BATCH

    name = f"enqueue + dispatch, {depth:,} waiting, {users:,} users, {fairness}"
    return compare(name, ours, push_and_pop(depth), repeats, target)


def reject(depth: int, repeats: int) -> Row:
    """An arrival that is refused because the queue is full."""
    scheduler, _ = filled(depth, depth // 10, Options(max_size=depth, wait_s_max=3600.0))
    events = [Arrived(f"no{number}", "llama", user="u0") for number in range(BATCH)]

    def ours() -> float:
        handle = scheduler.handle
        start_s = perf_counter()
        for event in events:
            handle(event, 1.0)
        return (perf_counter() - start_s) / BATCH

    return compare(f"reject when full, {depth:,} waiting", ours, push_and_pop(depth), repeats)


def cancel(depth: int, repeats: int) -> Row:
    """An entry in the middle of the line goes away; it is put back outside the clock."""
    scheduler, _ = filled(depth, depth // 10, OPTIONS)
    count = 0

    def ours() -> float:
        nonlocal count
        handle = scheduler.handle
        names = [f"c{count + number}" for number in range(BATCH)]
        count += BATCH
        for number, name in enumerate(names):
            handle(Arrived(name, "llama", user=f"u{number % 10}"), 1.0)
        events = [Cancelled(name) for name in names]
        start_s = perf_counter()
        for event in events:
            handle(event, 1.0)
        return (perf_counter() - start_s) / BATCH

    return compare(f"cancel, {depth:,} waiting", ours, push_and_pop(depth), repeats)
