"""Threads that wait: woken one for one, never forgotten, gone without a trace."""

import math
from collections.abc import Callable
from threading import Event

import pytest

from forebay.batching import (
    Cancelled,
    CancelToken,
    Priority,
    Request,
    RequestQueue,
)
from forebay.batching.queue import Waiter
from forebay.testing import FakeClock

from .conftest import Naps
from .sized import drained, fill, new_queue, sized
from .threads import JOIN_S, Running


def nobody_sleeps_in(queue: RequestQueue) -> bool:
    return not queue._sleepers._asleep


def test_waking_twice_is_waking_once() -> None:
    waiter = Waiter()
    waiter.wake()
    waiter.wake()
    assert waiter.wait(0)
    assert not waiter.wait(0)


def test_dequeue_waits_for_a_request(naps: Naps) -> None:
    queue = new_queue()
    waiting = Running(queue.dequeue)
    naps.wait_for(1)
    fill(queue, "a")
    assert waiting.result().id == "a"
    assert nobody_sleeps_in(queue)


def test_try_dequeue_takes_the_only_request() -> None:
    queue = new_queue()
    fill(queue, "a")
    request = Running(lambda: queue.try_dequeue(1.0)).result()
    assert request is not None
    assert request.id == "a"


def test_try_dequeue_waits_for_a_request(naps: Naps) -> None:
    queue = new_queue()
    waiting = Running(lambda: queue.try_dequeue(math.inf))
    naps.wait_for(1)
    fill(queue, "a")
    request = waiting.result()
    assert request is not None
    assert request.id == "a"


def test_try_dequeue_on_an_empty_queue_returns_none_when_the_time_is_up() -> None:
    queue = new_queue()
    assert Running(lambda: queue.try_dequeue(0.001)).result() is None
    assert nobody_sleeps_in(queue)


@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, -1, -math.inf])
def test_a_timeout_of_zero_or_less_does_not_wait(timeout: float, naps: Naps) -> None:
    queue = new_queue()
    assert Running(lambda: queue.try_dequeue(timeout)).result() is None
    assert naps.taken == 0
    fill(queue, "a")
    request = queue.try_dequeue(timeout)
    assert request is not None
    assert request.id == "a"


@pytest.mark.parametrize(
    ("timeout", "error", "message"),
    [
        (math.nan, ValueError, "timeout must be a number of seconds, not nan"),
        (None, TypeError, "timeout must be a number of seconds, not None"),
        ("1", TypeError, "timeout must be a number of seconds, not '1'"),
    ],
)
def test_a_senseless_timeout_is_refused(
    timeout: float, error: type[Exception], message: str
) -> None:
    queue = new_queue()
    fill(queue, "a")
    with pytest.raises(error, match=message):
        queue.try_dequeue(timeout)
    assert len(queue) == 1


@pytest.mark.parametrize("timeout", [1e300, math.inf])
def test_a_timeout_may_be_longer_than_the_machine_can_wait(timeout: float, naps: Naps) -> None:
    queue = new_queue()
    waiting = Running(lambda: queue.try_dequeue(timeout))
    naps.wait_for(1)
    queue.close()
    assert waiting.result() is None


def test_a_request_wakes_exactly_one_the_one_that_slept_longest(naps: Naps) -> None:
    queue = new_queue()
    waiting = []
    for _ in range(3):
        waiting.append(Running(queue.dequeue))
        naps.wait_for(1)
    for number, thread in enumerate(waiting):
        fill(queue, [str(number)])
        assert thread.result().id == str(number)
        assert naps.woken == number + 1


def test_a_request_that_wakes_nobody_is_there_for_the_next() -> None:
    queue = new_queue()
    fill(queue, "a")
    assert Running(queue.dequeue).result().id == "a"


def test_as_many_requests_as_sleepers_serve_them_all(naps: Naps) -> None:
    queue = new_queue()
    waiting = [Running(queue.dequeue) for _ in range(8)]
    naps.wait_for(8)
    fill(queue, "abcdefgh")
    assert sorted(thread.result().id for thread in waiting) == list("abcdefgh")
    assert (naps.woken, queue.is_empty) == (8, True)


def after_waking(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Have `what` happen once, in the instant after the first sleeper was woken."""
    real_wait, left = Waiter.wait, [what]

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        in_time = real_wait(waiter, timeout_s)
        if left:
            left.pop()()
        return in_time

    monkeypatch.setattr(Waiter, "wait", wait)


def test_a_woken_thread_takes_what_is_first_by_then(
    naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = new_queue()
    after_waking(monkeypatch, lambda: queue.enqueue(sized("urgent"), Priority.URGENT))
    waiting = Running(queue.dequeue)
    naps.wait_for(1)
    queue.enqueue(sized("low"), Priority.LOW)
    assert waiting.result().id == "urgent"
    assert drained(queue) == ["low"]


@pytest.mark.parametrize("loss", ["taken", "removed", "cancelled"])
def test_a_thread_woken_in_vain_sleeps_on_as_the_first(
    loss: str, naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, token = new_queue(), CancelToken()
    ways: dict[str, Callable[[], object]] = {
        "taken": lambda: queue.try_dequeue(0),
        "removed": lambda: queue.remove("a"),
        "cancelled": token.cancel,
    }
    after_waking(monkeypatch, ways[loss])
    first = Running(queue.dequeue)
    naps.wait_for(1)
    second = Running(queue.dequeue)
    naps.wait_for(1)
    queue.enqueue(sized("a", cancel=token))
    naps.wait_for(1)  # the first, again
    fill(queue, "b")
    assert first.result().id == "b"
    fill(queue, "c")
    assert second.result().id == "c"


def test_a_thread_cancelled_in_the_instant_it_was_woken_passes_the_wake_up_on(
    naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, token = new_queue(), CancelToken()
    after_waking(monkeypatch, token.cancel)
    leaver = Running(lambda: queue.dequeue(token))
    naps.wait_for(1)
    heir = Running(queue.dequeue)
    naps.wait_for(1)
    fill(queue, "a")
    assert heir.result().id == "a"
    with pytest.raises(Cancelled):
        leaver.result()
    assert token.registered == 0
    assert nobody_sleeps_in(queue)


def test_a_thread_interrupted_in_the_instant_it_was_woken_passes_the_wake_up_on(
    naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    queue = new_queue()
    after_waking(monkeypatch, interrupt)
    leaver = Running(queue.dequeue)
    naps.wait_for(1)
    heir = Running(queue.dequeue)
    naps.wait_for(1)
    fill(queue, "a")
    assert heir.result().id == "a"
    with pytest.raises(KeyboardInterrupt):
        leaver.result()


def test_a_thread_interrupted_in_its_sleep_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        raise KeyboardInterrupt

    queue, token = new_queue(), CancelToken()
    monkeypatch.setattr(Waiter, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        queue.dequeue(token)
    assert nobody_sleeps_in(queue)
    assert token.registered == 0


def test_a_thread_whose_time_is_up_in_the_instant_it_was_woken_takes_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = new_queue()

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        fill(queue, "a")
        return False

    monkeypatch.setattr(Waiter, "wait", wait)
    request = queue.try_dequeue(1.0)
    assert request is not None
    assert request.id == "a"
    assert nobody_sleeps_in(queue)


def test_a_thread_that_takes_a_request_wakes_nobody_else(
    naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, go = new_queue(), Event()
    real_wait = Waiter.wait

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        in_time = real_wait(waiter, timeout_s)
        assert go.wait(JOIN_S)  # so that both requests are there before anyone looks
        return in_time

    monkeypatch.setattr(Waiter, "wait", wait)
    waiting = []
    for _ in range(3):
        waiting.append(Running(queue.dequeue))
        naps.wait_for(1)
    fill(queue, "ab")
    go.set()
    assert sorted(thread.result().id for thread in waiting[:2]) == ["a", "b"]
    assert naps.woken == 2
    fill(queue, "c")
    assert waiting[2].result().id == "c"


def test_what_is_left_of_a_timeout_is_waited_for_after_a_vain_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    queue = new_queue(clock=clock)
    waits: list[float | None] = []

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        waits.append(timeout_s)
        clock.advance(4.0)
        return len(waits) < 3

    monkeypatch.setattr(Waiter, "wait", wait)
    assert queue.try_dequeue(10.0) is None
    assert waits == [10.0, 6.0, 2.0]
    assert nobody_sleeps_in(queue)


@pytest.mark.parametrize("timeout", [None, math.inf])
def test_cancelling_wakes_a_waiter(timeout: float | None, naps: Naps) -> None:
    queue, token = new_queue(), CancelToken()
    waiting: Running[Request | None] = (
        Running(lambda: queue.dequeue(token))
        if timeout is None
        else Running(lambda: queue.try_dequeue(timeout, token))
    )
    naps.wait_for(1)
    assert token.registered == 1
    token.cancel()
    with pytest.raises(Cancelled):
        waiting.result()
    assert token.registered == 0
    assert nobody_sleeps_in(queue)


def test_a_token_cancelled_beforehand_takes_nothing() -> None:
    queue, token = new_queue(), CancelToken()
    fill(queue, "a")
    token.cancel()
    with pytest.raises(Cancelled):
        queue.dequeue(token)
    with pytest.raises(Cancelled):
        queue.try_dequeue(0, token)
    assert len(queue) == 1


def test_a_token_cancelled_while_falling_asleep_is_not_missed(
    naps: Naps, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, token = new_queue(), CancelToken()
    real_wait = Waiter.wait

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        token.cancel()  # on its way to sleep: registered, and not yet waiting
        return real_wait(waiter, timeout_s)

    monkeypatch.setattr(Waiter, "wait", wait)
    with pytest.raises(Cancelled):
        Running(lambda: queue.dequeue(token)).result()
    assert nobody_sleeps_in(queue)


def test_a_waiter_that_was_served_or_ran_out_of_time_is_no_longer_registered(naps: Naps) -> None:
    queue, token = new_queue(), CancelToken()
    waiting = Running(lambda: queue.dequeue(token))
    naps.wait_for(1)
    fill(queue, "a")
    waiting.result()
    assert token.registered == 0
    fill(queue, "b")
    queue.dequeue(token)
    assert token.registered == 0
    assert queue.try_dequeue(0.001, token) is None
    assert token.registered == 0


def test_one_token_wakes_all_who_wait_with_it_and_nobody_else(naps: Naps) -> None:
    queue, token = new_queue(), CancelToken()
    leavers = [Running(lambda: queue.dequeue(token)) for _ in range(3)]
    stayer = Running(queue.dequeue)
    naps.wait_for(4)
    token.cancel()
    for leaver in leavers:
        with pytest.raises(Cancelled):
            leaver.result()
    fill(queue, "a")
    assert stayer.result().id == "a"


def test_putting_back_wakes_a_waiter(naps: Naps) -> None:
    queue = new_queue()
    fill(queue, "a")
    request = queue.dequeue()
    waiting = Running(queue.dequeue)
    naps.wait_for(1)
    queue.requeue(request)
    assert waiting.result() is request
