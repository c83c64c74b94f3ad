"""The queue against a list that is sorted anew each time: any order of calls, the same answers."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
)

from forebay.batching import (
    CancelToken,
    DuplicateRequest,
    NotTaken,
    Priority,
    QueueFull,
    Request,
    RequestQueue,
    RequestTooLarge,
)
from forebay.batching import line as line_module

from .sized import ids, new_queue
from .threads import Running

CAPACITY, MEMORY_LIMIT, UNPROVEN_CALLS = 10, 45, 2
IDS = "abcdefghijklmnop"
SIZES_DRAWN = (1, 5, 10, 10, 20, 30, 45, 60)
BUDGETS_DRAWN = (0, 5, 10, 15, 25, 25, 40, 55, 70)
SIZES, BUDGETS = st.sampled_from(SIZES_DRAWN), st.sampled_from(BUDGETS_DRAWN)


@dataclass
class Entry:
    """What the model knows about a request."""

    request: Request
    priority: Priority
    sequence: int
    skips: int = 0

    @property
    def size(self) -> int:
        return self.request.max_tokens


@dataclass
class Model:
    """The specification, said in the plainest way: O(n log n) for everything, one thread."""

    max_skips: int
    largest_budget: int
    waiting: list[Entry] = field(default_factory=list)
    taken: dict[Request, Entry] = field(default_factory=dict)
    arrivals: int = 0
    unproven_calls: int = 0

    def in_order(self) -> list[Entry]:
        return sorted(self.waiting, key=lambda entry: (-entry.priority, entry.sequence))

    def enqueue(self, request: Request, priority: Priority) -> None:
        self.arrivals += 1
        self.taken.pop(request, None)
        self.waiting.append(Entry(request, priority, self.arrivals))

    def waits(self, id: str) -> bool:
        return any(entry.request.id == id for entry in self.waiting)

    def drop(self, id: str) -> bool:
        before = len(self.waiting)
        self.waiting = [entry for entry in self.waiting if entry.request.id != id]
        return len(self.waiting) < before

    def take(self, entry: Entry) -> Request:
        self.waiting.remove(entry)
        self.taken[entry.request] = entry
        return entry.request

    def put_back(self, request: Request) -> None:
        self.waiting.append(self.taken.pop(request))

    def batch(self, max_count: int, budget: int) -> list[Request]:
        if budget > self.largest_budget:
            self.largest_budget, self.unproven_calls = budget, 0
        line, chosen, left = self.in_order(), list[int](), budget
        for index, entry in enumerate(line):
            something_fits = any(later.size <= left for later in line[index:])
            if len(chosen) == max_count or not something_fits:
                break
            if entry.size <= left:
                chosen.append(index)
                left -= entry.size
            elif self.is_reserved_for(entry):
                break
        for index, entry in enumerate(line):
            entry.skips += index not in chosen and index < max(chosen, default=-1)
        return [self.take(line[index]) for index in chosen]

    def is_reserved_for(self, entry: Entry) -> bool:
        if entry.skips < self.max_skips:
            return False
        if entry.size > self.largest_budget:
            self.unproven_calls += 1
            return self.unproven_calls <= UNPROVEN_CALLS
        return True


class QueueMachine(RuleBasedStateMachine):
    """Does the same to the queue and to the model, and compares after every step."""

    requests = Bundle("requests")
    max_skips = 1
    memory_limit: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.queue: RequestQueue = new_queue(CAPACITY, self.memory_limit, self.max_skips)
        self.model = Model(self.max_skips, largest_budget=self.memory_limit or 0)
        self.known: list[Request] = []

    @rule(
        target=requests,
        some=st.lists(st.tuples(st.sampled_from(IDS), SIZES, st.booleans()), max_size=5),
        priority=st.sampled_from([Priority.NORMAL, *Priority]),
    )
    def enqueue_new(self, some: list[tuple[str, int, bool]], priority: Priority) -> object:
        requests = [
            Request(id, "", size, CancelToken() if with_token else None)
            for id, size, with_token in some
        ]
        self.known += requests
        for request in requests:
            self.enqueue(request, priority)
        return multiple(*requests)

    @rule(request=requests, priority=st.sampled_from(Priority))
    def enqueue_again(self, request: Request, priority: Priority) -> None:
        if request.cancel is None or not request.cancel.cancelled:
            self.enqueue(request, priority)

    def enqueue(self, request: Request, priority: Priority) -> None:
        if self.model.waits(request.id):
            with pytest.raises(DuplicateRequest):
                self.queue.enqueue(request, priority)
        elif len(self.model.waiting) >= CAPACITY:
            with pytest.raises(QueueFull):
                self.queue.enqueue(request, priority)
        elif self.memory_limit is not None and request.max_tokens > self.memory_limit:
            with pytest.raises(RequestTooLarge):
                self.queue.enqueue(request, priority)
        else:
            self.queue.enqueue(request, priority)
            self.model.enqueue(request, priority)

    @rule()
    def dequeue(self) -> None:
        line = self.model.in_order()
        expected = self.model.take(line[0]) if line else None
        assert self.queue.try_dequeue(0) is expected

    @rule()
    def next_priority(self) -> None:
        line = self.model.in_order()
        assert self.queue.next_priority == (line[0].priority if line else None)

    @rule(calls=st.lists(st.tuples(st.integers(0, 3), BUDGETS), max_size=4))
    def get_requests(self, calls: list[tuple[int, int]]) -> None:
        for max_count, budget in calls:
            batch = self.queue.get_requests(max_count, budget)
            assert ids(batch) == ids(self.model.batch(max_count, budget))
            assert len(batch) <= max_count
            assert sum(request.max_tokens for request in batch) <= budget

    @rule(request=requests)
    def requeue(self, request: Request) -> None:
        if self.model.waits(request.id) and request._ticket is not None:
            with pytest.raises(DuplicateRequest):
                self.queue.requeue(request)
        elif request not in self.model.taken:
            with pytest.raises(NotTaken):
                self.queue.requeue(request)
        elif request.cancel is not None and request.cancel.cancelled:
            assert not self.queue.requeue(request)
            del self.model.taken[request]
        else:
            assert self.queue.requeue(request)
            self.model.put_back(request)

    @rule(id=st.sampled_from(IDS))
    def remove(self, id: str) -> None:
        assert self.queue.remove(id) == self.model.drop(id)

    @rule(id=st.sampled_from(IDS))
    def mark_cancelled(self, id: str) -> None:
        self.queue.mark_cancelled(id)
        self.model.drop(id)

    @rule(request=requests, while_the_lock_is_held=st.booleans())
    def cancel(self, request: Request, while_the_lock_is_held: bool) -> None:
        if request.cancel is None:
            return
        if while_the_lock_is_held:
            with self.queue._lock:
                Running(request.cancel.cancel).result()
        else:
            request.cancel.cancel()
        self.model.waiting = [e for e in self.model.waiting if e.request is not request]

    @precondition(lambda self: len(self.model.waiting) > CAPACITY // 2)
    @rule()
    def clear(self) -> None:
        assert self.queue.clear() == [entry.request for entry in self.model.in_order()]
        self.model.waiting.clear()

    @invariant()
    def both_agree_on_who_waits(self) -> None:
        assert len(self.queue) == len(self.model.waiting)
        assert self.queue.is_empty == (not self.model.waiting)
        for id in IDS:
            assert self.queue.contains(id) == self.model.waits(id)

    @invariant()
    def a_token_knows_a_request_exactly_while_it_waits(self) -> None:
        waiting = {entry.request for entry in self.model.waiting}
        for request in self.known:
            if request.cancel is not None:
                assert request.cancel.registered == (request in waiting)

    def teardown(self) -> None:
        assert self.queue.close() == [entry.request for entry in self.model.in_order()]


class LimitedQueueMachine(QueueMachine):
    """The same under a memory limit, in strict order."""

    max_skips = 0
    memory_limit: int | None = MEMORY_LIMIT


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "UNPROVEN_CALLS_MAX", UNPROVEN_CALLS)
    monkeypatch.setattr(line_module, "SLACK", 2)


WORKLOADS = range(200)


def draw_arrivals(random: Random, number: int) -> list[tuple[Request, Priority]]:
    """Draw what comes before a batch."""
    urgencies = (Priority.NORMAL, Priority.NORMAL, Priority.HIGH)
    return [
        (Request(f"{number}.{index}", "", random.choice(SIZES_DRAWN)), random.choice(urgencies))
        for index in range(random.randint(0, 4))
    ]


@pytest.mark.parametrize("memory_limit", [None, 60])
def test_batch_after_batch_is_what_the_model_says(memory_limit: int | None) -> None:
    """Nothing but arrivals and batches, so that passes and reservations add up.

    Drawn by seeds: there is nothing to shrink in a tenth of the time.
    """
    for seed in WORKLOADS:
        random = Random(seed)
        max_skips = random.randint(0, 3)
        queue = new_queue(None, memory_limit, max_skips)
        model = Model(max_skips, largest_budget=memory_limit or 0)
        for number in range(random.randint(10, 30)):
            for request, priority in draw_arrivals(random, number):
                queue.enqueue(request, priority)
                model.enqueue(request, priority)
            max_count, budget = random.randint(1, 4), random.choice(BUDGETS_DRAWN)
            batch = queue.get_requests(max_count, budget)
            assert ids(batch) == ids(model.batch(max_count, budget)), (seed, number)
            for request in batch[:1] if random.random() < 0.5 else []:
                queue.requeue(request)
                model.put_back(request)


EFFORT = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase
TestQueue.settings = EFFORT
TestLimitedQueue = LimitedQueueMachine.TestCase
TestLimitedQueue.settings = EFFORT
