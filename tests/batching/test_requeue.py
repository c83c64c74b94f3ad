"""Putting back what could not be run: to its old place, never lost for want of room."""

import gc
import weakref
from collections.abc import Callable
from itertools import permutations

import pytest

from forebay.batching import (
    CancelToken,
    DuplicateRequest,
    NotTaken,
    Priority,
    QueueFull,
    Request,
    RequestQueue,
)

from .sized import drained, fill, ids, new_queue, sized
from .threads import Running


def test_a_dequeued_request_returns_to_its_old_place() -> None:
    queue = new_queue()
    fill(queue, "abc")
    first = queue.dequeue()
    fill(queue, "d")
    assert queue.requeue(first)
    assert drained(queue) == ["a", "b", "c", "d"]


def test_a_request_from_a_batch_returns_to_its_old_place() -> None:
    queue = new_queue()
    fill(queue, "abcd")
    batch = queue.get_requests(3, 100)
    queue.requeue(batch[1])
    assert drained(queue) == ["b", "d"]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_batch_put_back_in_any_order_is_as_it_was(order: tuple[int, ...]) -> None:
    queue = new_queue()
    fill(queue, "cd")
    fill(queue, "ab", Priority.HIGH)
    batch = queue.get_requests(3, 100)
    for index in order:
        queue.requeue(batch[index])
    assert drained(queue) == ["a", "b", "c", "d"]


def test_a_place_is_kept_through_any_number_of_returns() -> None:
    queue = new_queue()
    fill(queue, "ab")
    for _ in range(5):
        queue.requeue(queue.dequeue())
    assert drained(queue) == ["a", "b"]


def test_its_priority_and_the_time_it_came_are_kept() -> None:
    queue = new_queue()
    queue.enqueue(sized("a"), Priority.URGENT)
    request = queue.dequeue()
    enqueued_s = request.enqueued_s
    queue.enqueue(sized("b"), Priority.HIGH)
    queue.requeue(request)
    assert queue.dequeue() is request
    assert (request.priority, request.enqueued_s) == (Priority.URGENT, enqueued_s)


def test_putting_back_never_fails_for_want_of_room_and_new_ones_wait_till_there_is() -> None:
    queue = new_queue(capacity=2)
    fill(queue, "ab")
    taken = queue.get_requests(2, 100)
    fill(queue, "cd")
    for request in taken:
        queue.requeue(request)
    assert len(queue) == 4
    for _ in range(3):
        with pytest.raises(QueueFull):
            fill(queue, "e")
        queue.dequeue()
    fill(queue, "e")
    assert drained(queue) == ["d", "e"]


def never_seen(queue: RequestQueue) -> Request:
    return sized("a")


def removed(queue: RequestQueue) -> Request:
    request = sized("a")
    queue.enqueue(request)
    queue.remove("a")
    return request


def cleared(queue: RequestQueue) -> Request:
    fill(queue, "a")
    return queue.clear()[0]


def cancelled_while_waiting(queue: RequestQueue) -> Request:
    request = sized("a", cancel=CancelToken())
    queue.enqueue(request)
    assert request.cancel is not None
    request.cancel.cancel()
    return request


def taken_elsewhere(queue: RequestQueue) -> Request:
    other = new_queue()
    fill(other, "a")
    return other.dequeue()


@pytest.mark.parametrize(
    "make", [never_seen, removed, cleared, cancelled_while_waiting, taken_elsewhere]
)
def test_what_was_not_taken_from_this_queue_has_no_place_to_return_to(
    make: Callable[[RequestQueue], Request],
) -> None:
    queue = new_queue()
    request = make(queue)
    with pytest.raises(NotTaken, match="'a' was not taken from this queue"):
        queue.requeue(request)
    assert queue.is_empty


def test_what_waits_already_cannot_be_put_back() -> None:
    queue = new_queue()
    fill(queue, "a")
    request = queue.dequeue()
    queue.requeue(request)
    with pytest.raises(DuplicateRequest, match="'a'"):
        queue.requeue(request)
    assert drained(queue) == ["a"]


def test_what_would_double_an_id_cannot_be_put_back() -> None:
    queue = new_queue()
    fill(queue, "a")
    old = queue.dequeue()
    new = sized("a")
    queue.enqueue(new)
    with pytest.raises(DuplicateRequest, match="'a'"):
        queue.requeue(old)
    assert queue.dequeue() is new
    assert queue.requeue(old)


def test_what_was_cancelled_meanwhile_is_dropped() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    request = queue.dequeue()
    token.cancel()
    assert not Running(lambda: queue.requeue(request)).result()
    assert (len(queue), token.registered) == (0, 0)
    with pytest.raises(NotTaken):
        queue.requeue(request)


def test_what_is_cancelled_afterwards_is_not_delivered() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    queue.requeue(queue.dequeue())
    token.cancel()
    assert queue.is_empty


def test_a_taken_request_may_be_enqueued_anew_and_is_then_the_last() -> None:
    queue = new_queue()
    fill(queue, "ab")
    first = queue.dequeue()
    queue.enqueue(first)
    assert drained(queue) == ["b", "a"]


def test_a_queue_remembers_nothing_about_a_request_that_was_taken_and_forgotten() -> None:
    class Payload:
        """Something large that an engine hangs on a request."""

    queue = new_queue()
    payload = Payload()
    watch = weakref.ref(payload)
    gc.disable()  # counting references must be enough: nothing may hold it, not even itself
    try:
        queue.enqueue(Request("a", "word", payload=payload))
        del payload
        queue.requeue(queue.dequeue())
        assert ids(queue.get_requests(1, 10**9)) == ["a"]
        assert watch() is None
    finally:
        gc.enable()
