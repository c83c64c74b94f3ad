"""Cancelling what waits: never delivered, not counted, nothing left registered, no deadlock."""

from collections.abc import Callable

import pytest

from forebay.batching import (
    Cancelled,
    CancelToken,
    DuplicateRequest,
    QueueClosed,
    QueueFull,
    Request,
    RequestQueue,
    RequestTooLarge,
)

from .sized import drained, fill, ids, new_queue, sized
from .threads import Running


class CancelledOnRegistering(CancelToken):
    """A token that is cancelled in the instant before somebody registers with it."""

    def register(self, callback: Callable[[], object]) -> object:
        self.cancel()
        return super().register(callback)


class CancelledMeanwhile(CancelToken):
    """A token whose canceller has raised the flag and not yet called anybody."""

    flag = False

    @property
    def cancelled(self) -> bool:
        return self.flag


def test_a_cancelled_request_is_skipped_and_cleaned_up() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    fill(queue, "b")
    token.cancel()
    assert (len(queue), queue.contains("a"), token.registered) == (1, False, 0)
    assert drained(queue) == ["b"]


def test_a_batch_leaves_cancelled_requests_out_and_spends_nothing_on_them() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", 5, token))
    queue.enqueue(sized("b", 5))
    token.cancel()
    assert ids(queue.get_requests(1, 5)) == ["b"]
    assert queue.is_empty


def test_a_queue_whose_only_request_was_cancelled_is_empty() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    token.cancel()
    assert queue.is_empty
    assert queue.try_dequeue(0) is None
    assert queue.get_requests(1, 1) == []
    assert not queue.remove("a")


def test_one_token_cancels_all_its_requests() -> None:
    queue, token = new_queue(), CancelToken()
    for id in "abc":
        queue.enqueue(sized(id, cancel=token))
    fill(queue, "d")
    assert token.registered == 3
    token.cancel()
    assert drained(queue) == ["d"]


PATHS: dict[str, Callable[[RequestQueue, CancelToken], object]] = {
    "dequeue": lambda queue, token: queue.dequeue(),
    "try_dequeue": lambda queue, token: queue.try_dequeue(0),
    "get_requests": lambda queue, token: queue.get_requests(1, 1),
    "remove": lambda queue, token: queue.remove("a"),
    "mark_cancelled": lambda queue, token: queue.mark_cancelled("a"),
    "clear": lambda queue, token: queue.clear(),
    "close": lambda queue, token: queue.close(),
    "cancel": lambda queue, token: token.cancel(),
    "requeue, dequeue": lambda queue, token: queue.requeue(queue.dequeue()) and queue.dequeue(),
}


@pytest.mark.parametrize("path", PATHS)
def test_no_registration_is_left_on_any_way_out(path: str) -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    assert token.registered == 1
    PATHS[path](queue, token)
    assert token.registered == 0
    assert queue.is_empty


def test_a_request_that_was_put_back_is_registered_once() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    for _ in range(3):
        queue.requeue(queue.dequeue())
    assert token.registered == 1
    token.cancel()
    assert queue.is_empty


def test_no_registration_is_left_by_a_refusal() -> None:
    token = CancelToken()
    full, strict, closed = new_queue(capacity=1), new_queue(memory_limit=5), new_queue()
    fill(full, "a")
    fill(strict, "a")
    closed.close()
    with pytest.raises(QueueFull):
        full.enqueue(sized("b", cancel=token))
    with pytest.raises(DuplicateRequest):
        strict.enqueue(sized("a", cancel=token))
    with pytest.raises(RequestTooLarge):
        strict.enqueue(sized("b", 6, token))
    with pytest.raises(QueueClosed):
        closed.enqueue(sized("b", cancel=token))
    assert token.registered == 0


def test_a_request_cancelled_beforehand_is_refused() -> None:
    queue, token = new_queue(), CancelToken()
    token.cancel()
    with pytest.raises(Cancelled, match="'a'"):
        queue.enqueue(sized("a", cancel=token))
    assert (len(queue), token.registered) == (0, 0)


def test_a_request_cancelled_while_it_is_measured_is_refused() -> None:
    token = CancelToken()

    def estimator(request: Request) -> int:
        token.cancel()
        return 1

    queue = RequestQueue(estimator=estimator)
    with pytest.raises(Cancelled, match="'a'"):
        queue.enqueue(sized("a", cancel=token))
    assert (len(queue), token.registered) == (0, 0)


def test_a_cancel_in_the_instant_of_registering_is_not_lost() -> None:
    queue, token = new_queue(), CancelledOnRegistering()
    with pytest.raises(Cancelled, match="'a'"):
        Running(lambda: queue.enqueue(sized("a", cancel=token))).result()
    assert (len(queue), token.registered) == (0, 0)
    fill(queue, "a")
    assert drained(queue) == ["a"]


@pytest.mark.parametrize("take", ["try_dequeue", "get_requests"])
def test_a_request_is_not_delivered_once_the_flag_is_up(take: str) -> None:
    queue, token = new_queue(), CancelledMeanwhile()
    queue.enqueue(sized("a", cancel=token))
    fill(queue, "b")
    token.flag = True
    got = [queue.try_dequeue(0)] if take == "try_dequeue" else queue.get_requests(1, 1)
    assert [request.id for request in got if request is not None] == ["b"]
    assert (len(queue), token.registered) == (0, 0)


def test_cancelling_never_waits_for_the_lock_of_the_queue() -> None:
    queue, token = new_queue(capacity=1), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    with queue._lock:  # as in a signal handler that interrupts a thread inside the queue
        Running(token.cancel).result()
    assert (len(queue), queue.contains("a")) == (0, False)
    fill(queue, "a")
    assert drained(queue) == ["a"]


def test_a_note_left_while_the_lock_was_held_is_read_before_anything_else() -> None:
    looks: dict[str, Callable[[RequestQueue], object]] = {
        "len": len,
        "is_empty": lambda queue: not queue.is_empty,
        "contains": lambda queue: queue.contains("a"),
        "remove": lambda queue: queue.remove("a"),
        "clear": lambda queue: queue.clear(),
        "close": lambda queue: queue.close(),
        "try_dequeue": lambda queue: queue.try_dequeue(0),
        "get_requests": lambda queue: queue.get_requests(1, 1),
        "enqueue": lambda queue: queue.enqueue(sized("a")),  # neither full nor a duplicate
    }
    for name, look in looks.items():
        queue, token = new_queue(capacity=1), CancelToken()
        queue.enqueue(sized("a", cancel=token))
        with queue._lock:
            Running(token.cancel).result()
        assert not look(queue), name


def test_a_callback_of_the_same_token_may_use_the_queue() -> None:
    queue, token = new_queue(), CancelToken()
    seen: list[int] = []

    def callback() -> None:
        queue.remove("a")
        queue.enqueue(sized("b"))
        seen.append(len(queue))

    queue.enqueue(sized("a", cancel=token))
    token.register(callback)
    Running(token.cancel).result()
    assert seen == [1]
    assert drained(queue) == ["b"]


def test_cancelling_a_taken_request_touches_no_other_with_its_id() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    queue.dequeue()
    fill(queue, "a")
    token.cancel()
    assert drained(queue) == ["a"]


def test_a_late_note_about_a_taken_request_touches_no_other_with_its_id() -> None:
    queue, token = new_queue(), CancelledMeanwhile()
    queue.enqueue(sized("a", cancel=token))
    (call_late,) = token._callbacks.values()  # what a canceller holds that was overtaken
    queue.dequeue()
    fill(queue, "a")
    call_late()
    assert drained(queue) == ["a"]


def test_mark_cancelled_takes_a_request_out_and_leaves_its_token_alone() -> None:
    queue, token = new_queue(), CancelToken()
    queue.enqueue(sized("a", cancel=token))
    fill(queue, "b")
    queue.mark_cancelled("a")
    queue.mark_cancelled("a")
    queue.mark_cancelled("never seen")
    assert (len(queue), token.cancelled, token.registered) == (1, False, 0)
    assert drained(queue) == ["b"]


def test_many_who_leave_from_the_middle_do_not_stay_in_memory() -> None:
    queue = new_queue(capacity=None)
    fill(queue, (str(number) for number in range(2_000)))
    for number in range(1, 2_000):
        queue.remove(str(number))
    assert queue._line._order.kept < 100
    assert len(queue._line._by_size) < 100
    assert drained(queue) == ["0"]


def test_those_who_come_and_go_do_not_stay_in_memory() -> None:
    queue = new_queue()
    fill(queue, "a")
    for _ in range(2_000):
        queue.requeue(queue.dequeue())
    assert queue._line._order.kept < 100
    assert len(queue._line._by_size) < 100
