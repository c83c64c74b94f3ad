"""Closing: everybody is woken, what was left is handed over, nothing more goes in or out."""

import math

import pytest

from forebay.batching import CancelToken, Priority, QueueClosed

from .conftest import Naps
from .sized import fill, ids, new_queue, sized
from .threads import Running


def test_closing_wakes_everyone(naps: Naps) -> None:
    queue, token = new_queue(), CancelToken()
    waiting = [Running(lambda: queue.dequeue(token)) for _ in range(3)]
    trying = [Running(lambda: queue.try_dequeue(math.inf, token)) for _ in range(3)]
    naps.wait_for(6)
    queue.close()
    for thread in waiting:
        with pytest.raises(QueueClosed):
            thread.result()
    assert [thread.result() for thread in trying] == [None] * 3
    assert token.registered == 0


def test_closing_returns_what_was_left_in_order_and_a_second_time_nothing() -> None:
    queue = new_queue()
    fill(queue, "ab")
    fill(queue, "c", Priority.HIGH)
    assert ids(queue.close()) == ["c", "a", "b"]
    assert queue.close() == []
    assert queue.closed


def test_a_closed_queue_is_empty_and_takes_and_gives_nothing() -> None:
    queue = new_queue()
    fill(queue, "ab")
    taken = queue.dequeue()
    queue.close()
    assert (len(queue), queue.is_empty, queue.contains("b")) == (0, True, False)
    with pytest.raises(QueueClosed):
        queue.dequeue()
    with pytest.raises(QueueClosed):
        queue.enqueue(sized("c"))
    with pytest.raises(QueueClosed):
        queue.requeue(taken)
    assert queue.try_dequeue(math.inf) is None
    assert queue.try_dequeue(0) is None
    assert queue.get_requests(1, 1) == []
    assert not queue.remove("b")
    assert queue.clear() == []


def test_a_queue_is_closed_at_the_end_of_a_with_block() -> None:
    with new_queue() as queue:
        fill(queue, "a")
    with pytest.raises(QueueClosed):
        queue.dequeue()
