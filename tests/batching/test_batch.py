"""The next batch: within count and budget, in order; a big head neither blocks nor starves."""

import heapq
from collections.abc import Callable

import pytest

from forebay.batching import Priority, RequestQueue
from forebay.batching import line as line_module
from forebay.batching import order as order_module
from forebay.batching.order import ServiceOrder

from .sized import drained, fill, ids, new_queue, sized


def enqueue_sizes(queue: RequestQueue, sizes: dict[str, int]) -> None:
    for id, size in sizes.items():
        queue.enqueue(sized(id, size))


def test_a_batch_holds_at_most_so_many() -> None:
    queue = new_queue()
    fill(queue, "abc")
    assert ids(queue.get_requests(2, 100)) == ["a", "b"]
    assert ids(queue.get_requests(2, 100)) == ["c"]
    assert queue.get_requests(2, 100) == []


def test_a_batch_holds_at_most_so_many_bytes() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"a": 4, "b": 4, "c": 4})
    assert ids(queue.get_requests(10, 11)) == ["a", "b"]
    assert ids(queue.get_requests(10, 3)) == []
    assert ids(queue.get_requests(10, 4)) == ["c"]


def test_a_batch_may_fill_the_budget_to_the_last_byte() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"a": 4, "b": 6, "c": 1})
    assert ids(queue.get_requests(10, 10)) == ["a", "b"]


def test_a_batch_is_in_order_of_priority_and_arrival() -> None:
    queue = new_queue()
    fill(queue, ["low"], Priority.LOW)
    fill(queue, ["n1", "n2"])
    fill(queue, ["u1", "u2"], Priority.URGENT)
    assert ids(queue.get_requests(4, 100)) == ["u1", "u2", "n1", "n2"]
    assert drained(queue) == ["low"]


def test_a_batch_of_none_and_a_budget_of_nothing_take_nothing() -> None:
    queue = new_queue()
    fill(queue, "a")
    assert queue.get_requests(0, 100) == []
    assert queue.get_requests(10, 0) == []
    assert len(queue) == 1


def test_a_budget_without_end_takes_all() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"a": 10**18, "b": 10**18})
    assert ids(queue.get_requests(10, float("inf"))) == ["a", "b"]


def test_what_can_be_taken_and_what_is_there_stay_in_step() -> None:
    queue = new_queue()
    fill(queue, "abcde")
    queue.remove("b")
    assert ids(queue.get_requests(2, 100)) == ["a", "c"]
    assert len(queue) == 2
    assert drained(queue) == ["d", "e"]
    assert queue.try_dequeue(0) is None
    fill(queue, "f")
    assert queue.dequeue().id == "f"


def test_new_requests_join_while_others_run() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"a": 5, "b": 5})
    running = queue.get_requests(8, 6)
    enqueue_sizes(queue, {"c": 1})
    running += queue.get_requests(8, 6 - sum(r.memory_bytes or 0 for r in running))
    assert ids(running) == ["a", "c"]


def test_a_big_head_does_not_block_those_behind_it() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"big": 100, "a": 1, "b": 1})
    assert ids(queue.get_requests(10, 50)) == ["a", "b"]
    assert drained(queue) == ["big"]


def test_a_request_too_big_for_the_rest_is_passed_over_and_goes_first_next_time() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"a": 60, "big": 50, "c": 40})
    assert ids(queue.get_requests(10, 100)) == ["a", "c"]
    enqueue_sizes(queue, {"d": 60})
    assert ids(queue.get_requests(10, 100)) == ["big"]


@pytest.mark.parametrize("max_skips", [0, 1, 3, 8])
@pytest.mark.parametrize("memory_limit", [None, 100])
def test_a_big_head_is_passed_over_so_often_and_no_more(
    max_skips: int, memory_limit: int | None
) -> None:
    queue = new_queue(capacity=None, memory_limit=memory_limit, max_skips=max_skips)
    enqueue_sizes(queue, {"big": 80})
    enqueue_sizes(queue, {str(number): 10 for number in range(100)})
    for call in range(max_skips):
        assert ids(queue.get_requests(2, 50)) == [str(2 * call), str(2 * call + 1)]
    for _ in range(20):
        assert queue.get_requests(2, 50) == []
    assert ids(queue.get_requests(2, 100)) == ["big", str(2 * max_skips)]


def test_the_default_is_eight_passes() -> None:
    queue = RequestQueue(estimator=lambda request: request.max_tokens)
    enqueue_sizes(queue, {"big": 80})
    enqueue_sizes(queue, {str(number): 10 for number in range(20)})
    batches = [queue.get_requests(1, 50) for _ in range(10)]
    assert [len(batch) for batch in batches] == [1] * 8 + [0] * 2


def test_a_big_head_is_served_at_last_however_many_small_ones_come() -> None:
    queue = new_queue(capacity=None, max_skips=3)
    enqueue_sizes(queue, {"first": 60, "big": 80})
    (running,) = queue.get_requests(1, 100)
    used, served, overtook = running.memory_bytes or 0, [running.id], 0
    for step in range(20):
        queue.enqueue(sized(f"small {step}", 10))
        batch = queue.get_requests(8, 100 - used)
        used += sum(request.memory_bytes or 0 for request in batch)
        served += ids(batch)
        if "big" in served:
            break
        overtook += bool(batch)
        used = max(0, used - 10)  # something finishes
    assert "big" in served
    assert overtook <= 3


def test_only_a_call_that_takes_something_behind_it_counts_as_a_pass() -> None:
    queue = new_queue(max_skips=1)
    enqueue_sizes(queue, {"big": 80, "a": 10, "b": 10})
    for _ in range(10):
        assert queue.get_requests(10, 5) == []  # nothing fits: nobody is overtaken
        assert queue.get_requests(0, 100) == []
    assert ids(queue.get_requests(1, 50)) == ["a"]
    assert queue.get_requests(1, 50) == []


def test_one_that_stands_behind_what_was_taken_was_not_passed_over() -> None:
    queue = new_queue(capacity=None, max_skips=1)
    for number in range(5):
        queue.enqueue(sized(f"ahead {number}", 30), Priority.HIGH)
    enqueue_sizes(queue, {"big": 80, "behind": 30})
    for number in range(5):
        assert ids(queue.get_requests(1, 50)) == [f"ahead {number}"]
    assert ids(queue.get_requests(1, 50)) == ["behind"]


def test_a_reservation_holds_up_only_those_behind_it() -> None:
    queue = new_queue(max_skips=0)
    enqueue_sizes(queue, {"big": 80, "behind": 10})
    assert queue.get_requests(10, 50) == []
    queue.enqueue(sized("urgent", 10), Priority.URGENT)
    assert ids(queue.get_requests(10, 50)) == ["urgent"]
    assert ids(queue.get_requests(10, 100)) == ["big", "behind"]


def test_a_reservation_ends_when_its_request_goes_away() -> None:
    queue = new_queue(max_skips=0)
    enqueue_sizes(queue, {"big": 80, "behind": 10})
    assert queue.get_requests(10, 50) == []
    queue.remove("big")
    assert ids(queue.get_requests(10, 50)) == ["behind"]


def test_a_request_put_back_has_been_passed_over_as_often_as_before() -> None:
    queue = new_queue(max_skips=2)
    enqueue_sizes(queue, {"big": 80, "a": 10, "b": 10, "c": 10})
    assert ids(queue.get_requests(1, 50)) == ["a"]
    queue.requeue(queue.dequeue())
    assert ids(queue.get_requests(1, 50)) == ["b"]
    assert queue.get_requests(1, 50) == []


def test_a_request_larger_than_every_budget_holds_up_the_others_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "UNPROVEN_CALLS_MAX", 3)
    queue = new_queue(max_skips=1)
    enqueue_sizes(queue, {"huge": 1000, "huger": 2000, "a": 10, "b": 10, "c": 10, "d": 10})
    assert [ids(queue.get_requests(1, 50)) for _ in range(6)] == [["a"], [], [], [], ["b"], ["c"]]
    assert queue.dequeue().id == "huge"
    assert ids(queue.get_requests(1, 50)) == ["d"]


def test_a_larger_budget_makes_the_reservation_hold_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "UNPROVEN_CALLS_MAX", 2)
    queue = new_queue(capacity=None, max_skips=0)
    enqueue_sizes(queue, {"huge": 1000, "huger": 2000})
    enqueue_sizes(queue, {str(number): 10 for number in range(50)})
    assert [len(queue.get_requests(1, 50)) for _ in range(4)] == [0, 0, 1, 1]
    queue.enqueue(sized("urgent", 900), Priority.URGENT)
    assert ids(queue.get_requests(8, 1500)) == ["urgent"]  # 1500 was free: 1000 can come again
    for _ in range(20):
        assert queue.get_requests(8, 900) == []
    assert ids(queue.get_requests(1, 1000)) == ["huge"]
    assert [len(queue.get_requests(1, 50)) for _ in range(4)] == [0, 0, 1, 1]  # "huger": unproven


def test_under_a_memory_limit_a_reservation_holds_without_end() -> None:
    queue = new_queue(memory_limit=1000, max_skips=0)
    enqueue_sizes(queue, {"big": 1000, "a": 10})
    for _ in range(3 * line_module.UNPROVEN_CALLS_MAX):
        assert queue.get_requests(8, 50) == []
    assert ids(queue.get_requests(8, 1010)) == ["big", "a"]


class HeapCounts:
    """How often the line has touched its heaps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.put_back = self.pops = 0
        monkeypatch.setattr(ServiceOrder, "push", self.counted("put_back", ServiceOrder.push))
        for module in (line_module, order_module):
            monkeypatch.setattr(module, "heappop", self.counted("pops", heapq.heappop))

    def counted(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            setattr(self, name, getattr(self, name) + 1)
            return real(*arguments)

        return call


def test_a_batch_is_taken_in_one_pass_that_puts_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = new_queue(capacity=None)
    fill(queue, (str(number) for number in range(1_000)))
    counts = HeapCounts(monkeypatch)
    assert len(queue.get_requests(64, 64)) == 64
    assert counts.put_back == 0
    assert counts.pops <= 3 * 64


def test_only_those_passed_over_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = new_queue(capacity=None)
    enqueue_sizes(queue, {f"big {number}": 100 for number in range(5)})
    fill(queue, (str(number) for number in range(1_000)))
    counts = HeapCounts(monkeypatch)
    assert len(queue.get_requests(64, 64)) == 64
    assert counts.put_back == 5
    assert counts.pops <= 3 * 64 + 2 * 5


def test_one_that_was_looked_at_in_vain_was_not_passed_over() -> None:
    queue = new_queue(max_skips=1, memory_limit=100)
    enqueue_sizes(queue, {"reserved": 80, "a": 10, "b": 10, "c": 10})
    assert ids(queue.get_requests(1, 50)) == ["a"]
    queue.enqueue(sized("high", 70), Priority.HIGH)
    for _ in range(5):
        assert queue.get_requests(1, 50) == []  # looks at both, and takes neither
    queue.remove("reserved")
    assert ids(queue.get_requests(1, 50)) == ["b"]
    assert queue.get_requests(1, 50) == []


def test_one_that_came_back_is_found_again() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"small": 10, "big": 80})
    small = queue.dequeue()
    assert queue.get_requests(1, 50) == []
    queue.requeue(small)
    assert ids(queue.get_requests(1, 50)) == ["small"]


def test_one_that_was_passed_over_and_came_back_is_found_again() -> None:
    queue = new_queue()
    enqueue_sizes(queue, {"middle": 40, "small": 10, "big": 80})
    assert ids(queue.get_requests(1, 30)) == ["small"]
    middle = queue.dequeue()
    assert queue.get_requests(1, 50) == []
    queue.requeue(middle)
    assert ids(queue.get_requests(1, 50)) == ["middle"]


def test_the_small_ones_that_left_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = new_queue(capacity=None)
    enqueue_sizes(queue, {"small": 1})
    enqueue_sizes(queue, {str(number): 100 for number in range(1_000)})
    queue.dequeue()
    counts = HeapCounts(monkeypatch)
    assert queue.get_requests(64, 99) == []
    assert (counts.put_back, counts.pops) == (0, 1)


def test_where_nothing_fits_nobody_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = new_queue(capacity=None)
    enqueue_sizes(queue, {str(number): 100 for number in range(1_000)})
    counts = HeapCounts(monkeypatch)
    assert queue.get_requests(64, 99) == []
    assert (counts.put_back, counts.pops) == (0, 0)


def test_those_below_a_priority_are_left_waiting_and_not_passed_over() -> None:
    queue = new_queue(max_skips=1)
    queue.enqueue(sized("high"), Priority.HIGH)
    fill(queue, "ab")
    for _ in range(3):
        assert ids(queue.get_requests(8, 100, min_priority=Priority.URGENT)) == []
    assert ids(queue.get_requests(8, 100, min_priority=Priority.HIGH)) == ["high"]
    assert drained(queue) == ["a", "b"]
