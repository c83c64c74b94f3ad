"""Order, bounds, refusals and looking in: what one thread sees of the queue."""

import math
from collections.abc import Callable

import pytest

from forebay.batching import (
    Cancelled,
    CancelToken,
    DuplicateRequest,
    NotTaken,
    Priority,
    QueueClosed,
    QueueFull,
    Request,
    RequestQueue,
    RequestTooLarge,
)
from forebay.errors import ForebayError, NotAllowed, Rejected
from forebay.testing import FakeClock

from .sized import drained, fill, ids, new_queue, sized
from .threads import Running


def test_what_goes_in_comes_out() -> None:
    queue = new_queue()
    request = sized("a")
    queue.enqueue(request)
    assert queue.dequeue() is request


def test_length_and_emptiness_are_exact() -> None:
    queue = new_queue()
    assert (len(queue), queue.is_empty) == (0, True)
    fill(queue, "ab")
    assert (len(queue), queue.is_empty) == (2, False)
    queue.dequeue()
    assert (len(queue), queue.is_empty) == (1, False)
    queue.dequeue()
    assert (len(queue), queue.is_empty) == (0, True)


def test_priorities_are_the_right_way_up() -> None:
    queue = new_queue()
    for priority in (Priority.NORMAL, Priority.LOW, Priority.URGENT, Priority.HIGH):
        queue.enqueue(sized(priority.name), priority)
    assert drained(queue) == ["URGENT", "HIGH", "NORMAL", "LOW"]


def test_equals_leave_in_order_of_arrival() -> None:
    queue = new_queue(capacity=None)
    names = [str(number) for number in range(500)]
    fill(queue, names)
    assert drained(queue) == names


def test_equals_stay_in_order_among_other_priorities() -> None:
    queue = new_queue(capacity=None)
    arrivals = [(f"{number}", Priority(number * 7 % 4)) for number in range(200)]
    for id, priority in arrivals:
        queue.enqueue(sized(id), priority)
    expected = sorted(arrivals, key=lambda arrival: -arrival[1])  # sorted() is stable
    assert drained(queue) == [id for id, _ in expected]


def test_a_request_that_joins_later_but_is_more_urgent_goes_first() -> None:
    queue = new_queue()
    fill(queue, "ab")
    assert queue.dequeue().id == "a"
    queue.enqueue(sized("c"), Priority.HIGH)
    assert drained(queue) == ["c", "b"]


def test_a_priority_may_be_given_by_its_number_and_a_wrong_one_is_refused() -> None:
    queue = new_queue()
    queue.enqueue(sized("a"), 3)  # type: ignore[arg-type]  # what untyped callers do
    assert queue.dequeue().priority is Priority.URGENT
    with pytest.raises(ValueError, match="7 is not a valid Priority"):
        queue.enqueue(sized("b"), 7)  # type: ignore[arg-type]  # the error under test
    assert queue.is_empty


def test_contains_knows_who_waits() -> None:
    queue = new_queue()
    queue.enqueue(sized("a"))
    assert queue.contains("a")
    assert not queue.contains("b")
    queue.dequeue()
    assert not queue.contains("a")


def test_a_removed_request_is_never_delivered_and_not_counted() -> None:
    queue = new_queue()
    fill(queue, "abc")
    assert queue.remove("b")
    assert (len(queue), queue.contains("b")) == (2, False)
    assert drained(queue) == ["a", "c"]


def test_a_removed_request_is_never_in_a_batch() -> None:
    queue = new_queue()
    fill(queue, "abc")
    assert queue.remove("a")
    assert ids(queue.get_requests(10, 10)) == ["b", "c"]


def test_removing_what_does_not_wait_says_so() -> None:
    queue = new_queue()
    fill(queue, "ab")
    assert not queue.remove("x")
    assert queue.remove("a")
    assert not queue.remove("a")
    queue.dequeue()
    assert not queue.remove("b")


def test_a_removed_request_may_come_again_at_the_end() -> None:
    queue = new_queue()
    again = sized("a")
    queue.enqueue(again)
    queue.enqueue(sized("b"))
    queue.remove("a")
    queue.enqueue(again)
    assert drained(queue) == ["b", "a"]


def test_clear_empties_the_queue_and_returns_what_was_in_it_in_order() -> None:
    queue = new_queue()
    fill(queue, "ab")
    fill(queue, "c", Priority.HIGH)
    assert ids(queue.clear()) == ["c", "a", "b"]
    assert (len(queue), queue.is_empty, queue.contains("a")) == (0, True, False)
    assert queue.try_dequeue(0) is None
    fill(queue, "a")
    assert drained(queue) == ["a"]


def test_capacity_is_a_hard_bound_and_the_refusal_names_the_numbers() -> None:
    queue = new_queue(capacity=2)
    fill(queue, "ab")
    with pytest.raises(QueueFull, match="'c' refused: 2 of 2 places are taken"):
        queue.enqueue(sized("c"), Priority.URGENT)
    assert drained(queue) == ["a", "b"]


WAYS_OUT: dict[str, Callable[[RequestQueue, CancelToken], object]] = {
    "dequeue": lambda queue, token: queue.dequeue(),
    "get_requests": lambda queue, token: queue.get_requests(1, 1),
    "remove": lambda queue, token: queue.remove("a"),
    "cancel": lambda queue, token: token.cancel(),
    "clear": lambda queue, token: queue.clear(),
}


@pytest.mark.parametrize("leave", WAYS_OUT)
def test_whoever_leaves_makes_room(leave: str) -> None:
    queue, token = new_queue(capacity=1), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    WAYS_OUT[leave](queue, token)
    queue.enqueue(sized("b"))
    assert drained(queue) == ["b"]


def test_without_a_capacity_there_is_no_bound() -> None:
    queue = new_queue(capacity=None)
    fill(queue, (str(number) for number in range(1_000)))
    assert len(queue) == 1_000


def test_a_hundred_fit_by_default() -> None:
    queue = RequestQueue()
    fill(queue, (str(number) for number in range(100)))
    with pytest.raises(QueueFull, match="100 of 100"):
        queue.enqueue(sized("one more"))


def test_a_request_over_the_memory_limit_is_refused_with_both_numbers() -> None:
    queue = new_queue(memory_limit=10)
    with pytest.raises(RequestTooLarge, match=r"'a' refused: it needs 11 bytes.* is 10"):
        queue.enqueue(sized("a", 11))
    assert queue.is_empty
    queue.enqueue(sized("a", 10))
    assert ids(queue.get_requests(1, 10)) == ["a"]


def test_a_duplicate_id_is_refused_and_the_first_stays() -> None:
    queue = new_queue()
    first = sized("a")
    queue.enqueue(first)
    with pytest.raises(DuplicateRequest, match="'a'"):
        queue.enqueue(sized("a"), Priority.URGENT)
    assert len(queue) == 1
    assert queue.dequeue() is first
    assert queue.is_empty


def test_an_id_is_free_again_once_its_request_was_taken() -> None:
    queue = new_queue()
    fill(queue, "a")
    queue.dequeue()
    fill(queue, "a")
    assert drained(queue) == ["a"]


def test_one_request_does_not_wait_in_two_queues() -> None:
    here, there = new_queue(), new_queue()
    request = sized("a")
    here.enqueue(request)
    with pytest.raises(DuplicateRequest, match="waits in another queue"):
        there.enqueue(request)
    here.dequeue()
    there.enqueue(request)
    assert drained(there) == ["a"]


def test_the_estimate_is_made_once_and_kept() -> None:
    asked: list[str] = []

    def estimator(request: Request) -> int:
        asked.append(request.id)
        return 7

    queue = RequestQueue(estimator=estimator)
    queue.enqueue(sized("a"))
    assert queue.get_requests(1, 6) == []
    (request,) = queue.get_requests(1, 7)
    queue.requeue(request)
    assert queue.dequeue().memory_bytes == 7
    assert asked == ["a"]


def test_the_estimate_is_made_outside_the_lock() -> None:
    def estimator(request: Request) -> int:
        return len(queue.get_requests(1, 0)) + queue.contains(request.id)  # needs the lock

    queue = RequestQueue(estimator=estimator)
    Running(lambda: queue.enqueue(sized("a"))).result()
    assert queue.dequeue().memory_bytes == 0


def test_a_full_queue_refuses_before_it_pays_for_an_estimate() -> None:
    asked: list[str] = []

    def estimator(request: Request) -> int:
        asked.append(request.id)
        return 0

    queue = RequestQueue(capacity=1, estimator=estimator)
    queue.enqueue(sized("a"))
    with pytest.raises(QueueFull):
        queue.enqueue(sized("b"))
    with pytest.raises(DuplicateRequest):
        queue.enqueue(sized("a"))
    assert asked == ["a"]


MEANWHILE: dict[str, tuple[Callable[[RequestQueue], object], type[Exception]]] = {
    "full": (lambda queue: queue.enqueue(sized("b")), QueueFull),
    "taken by another": (lambda queue: queue.enqueue(sized("a")), DuplicateRequest),
    "closed": (lambda queue: queue.close(), QueueClosed),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_changed_while_the_estimate_was_made_counts(what: str) -> None:
    happen, error = MEANWHILE[what]
    token = CancelToken()
    slow = sized("a", cancel=token)

    def estimator(request: Request) -> int:
        if request is slow:
            happen(queue)
        return 1

    queue = RequestQueue(capacity=1, estimator=estimator)
    with pytest.raises(error):
        Running(lambda: queue.enqueue(slow)).result()
    assert len(queue) == (what != "closed")
    assert token.registered == 0


@pytest.mark.parametrize(
    ("estimate", "error", "message"),
    [
        (-1, ValueError, "less than 0 bytes, as -1 .*'a'"),
        (1.5, TypeError, "whole bytes, not 1.5 .*'a'"),
        (None, TypeError, "whole bytes, not None .*'a'"),
    ],
)
def test_a_senseless_estimate_is_refused(
    estimate: int, error: type[Exception], message: str
) -> None:
    token = CancelToken()
    queue = RequestQueue(estimator=lambda _: estimate)
    with pytest.raises(error, match=message):
        queue.enqueue(sized("a", cancel=token))
    assert (len(queue), token.registered) == (0, 0)


def test_a_request_knows_its_size_its_priority_and_when_it_came() -> None:
    clock = FakeClock(start_s=5.0)
    queue = new_queue(clock=clock)
    request = sized("a", 3)
    assert (request.memory_bytes, request.priority, request.enqueued_s) == (None, None, None)
    queue.enqueue(request, Priority.HIGH)
    clock.advance(2.0)
    queue.dequeue()
    assert (request.memory_bytes, request.priority, request.enqueued_s) == (3, Priority.HIGH, 5.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity must be at least 1, not 0"),
        ({"capacity": -1}, ValueError, "capacity must be at least 1, not -1"),
        ({"capacity": 1.5}, TypeError, "capacity must be a whole number, not 1.5"),
        ({"capacity": True}, TypeError, "capacity must be a whole number, not True"),
        ({"max_skips": -1}, ValueError, "max_skips must be at least 0, not -1"),
        ({"memory_limit": 0}, ValueError, "memory_limit must be at least 1, not 0"),
    ],
)
def test_a_senseless_queue_is_refused_naming_the_argument(
    arguments: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RequestQueue(**arguments)  # type: ignore[arg-type]  # the errors under test


@pytest.mark.parametrize(
    ("max_count", "memory_budget", "error", "message"),
    [
        (-1, 1, ValueError, "max_count must be at least 0, not -1"),
        (1.0, 1, TypeError, "max_count must be a whole number, not 1.0"),
        (1, -1, ValueError, "memory_budget must be at least 0, not -1"),
        (1, math.nan, ValueError, "memory_budget must be at least 0, not nan"),
    ],
)
def test_a_senseless_batch_is_refused_naming_the_argument(
    max_count: int, memory_budget: float, error: type[Exception], message: str
) -> None:
    queue = new_queue()
    fill(queue, "a")
    with pytest.raises(error, match=message):
        queue.get_requests(max_count, memory_budget)
    assert len(queue) == 1


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (QueueFull, Rejected, "queue_full"),
        (RequestTooLarge, NotAllowed, "request_too_large"),
        (DuplicateRequest, NotAllowed, "duplicate_request"),
        (NotTaken, NotAllowed, "not_taken"),
        (QueueClosed, NotAllowed, "queue_closed"),
        (Cancelled, ForebayError, "cancelled"),
    ],
)
def test_errors_say_what_the_caller_can_do(
    error: type[ForebayError], kind: type[ForebayError], code: str
) -> None:
    assert issubclass(error, kind)
    assert error.code == code
