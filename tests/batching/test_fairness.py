"""`fairness="round_robin"`: users of one priority share by size."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.batching import Priority, Request, RequestQueue

from .sized import drained, ids, new_queue, sized

USERS = ("ann", "bob", "cyd")
SIZES = st.integers(1, 50)


def fair_queue() -> RequestQueue:
    return new_queue(capacity=None, fairness="round_robin")


def test_fifo_is_the_default_and_knows_no_users() -> None:
    queue = new_queue()
    for number, user in enumerate(["ann", "ann", "bob"]):
        queue.enqueue(sized(str(number), user=user))
    assert drained(queue) == ["0", "1", "2"]


def test_users_take_turns() -> None:
    queue = fair_queue()
    for number in range(3):
        queue.enqueue(sized(f"ann {number}", user="ann"))
    queue.enqueue(sized("bob 0", user="bob"))
    assert drained(queue) == ["ann 0", "bob 0", "ann 1", "ann 2"]


def test_priorities_come_before_users() -> None:
    queue = fair_queue()
    queue.enqueue(sized("low", user="bob"), Priority.LOW)
    for number in range(2):
        queue.enqueue(sized(f"high {number}", user="ann"), Priority.HIGH)
    assert drained(queue) == ["high 0", "high 1", "low"]


def test_one_user_comes_in_order_of_arrival() -> None:
    queue = fair_queue()
    for number, size in enumerate([30, 1, 20]):
        queue.enqueue(sized(str(number), size, user="ann"))
    assert drained(queue) == ["0", "1", "2"]


def test_an_unknown_fairness_is_refused() -> None:
    with pytest.raises(ValueError, match="fairness must be one of fifo, round_robin, not 'lifo'"):
        RequestQueue(fairness="lifo")  # type: ignore[arg-type]


def test_a_user_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="user must be a str, not 7"):
        Request("r", "a prompt", user=7)  # type: ignore[arg-type]


@given(st.lists(st.tuples(SIZES, SIZES), min_size=20, max_size=60), st.integers(0, 2**32))
def test_two_backlogged_users_differ_by_at_most_one_largest_request_each(
    sizes: list[tuple[int, int]], seed: int
) -> None:
    chance, queue = Random(seed), fair_queue()
    for number, pair in enumerate(sizes):
        for user, size in zip(USERS, pair, strict=False):
            queue.enqueue(sized(f"{user} {number}", size, user=user))
    largest = [max(column) for column in zip(*sizes, strict=True)]
    served, left = Counter[str](), Counter({user: len(sizes) for user in USERS[:2]})
    while min(left.values()) > 0:
        request = queue.dequeue()
        if chance.random() < 0.2:  # could not be run after all
            queue.requeue(request)
            continue
        served[request.user] += request.max_tokens
        left[request.user] -= 1
        if chance.random() < 0.2:  # another user passes by
            queue.enqueue(sized("cyd", chance.randrange(1, 50), user="cyd"))
            queue.remove("cyd")
        assert abs(served["ann"] - served["bob"]) <= sum(largest)


def test_what_was_cancelled_costs_its_user_nothing() -> None:
    queue = fair_queue()
    for number in range(10):
        queue.enqueue(sized(f"ann {number}", 50, user="ann"))
        queue.enqueue(sized(f"bob {number}", 50, user="bob"))
    for number in range(9):
        queue.remove(f"ann {number}")
    assert drained(queue)[:3] == ["bob 0", "ann 9", "bob 1"]


def test_a_newcomer_has_no_claim_on_the_past() -> None:
    queue = fair_queue()
    for number in range(20):
        queue.enqueue(sized(f"ann {number}", user="ann"))
    for _ in range(10):
        queue.dequeue()
    for number in range(10):
        queue.enqueue(sized(f"bob {number}", user="bob"))
    assert Counter(id.split()[0] for id in drained(queue)[:10]) == {"ann": 5, "bob": 5}


def test_leaving_and_coming_back_gains_nothing() -> None:
    queue, served = fair_queue(), Counter[str]()
    for number in range(100):
        queue.enqueue(sized(f"bob {number}", 10, user="bob"))
    for _ in range(60):
        if not queue.contains("ann"):
            queue.enqueue(sized("ann", 10, user="ann"))
        served[queue.dequeue().user] += 1
    assert abs(served["ann"] - served["bob"]) <= 2


def test_a_batch_shares_between_users_and_passes_over_what_does_not_fit() -> None:
    queue = fair_queue()
    queue.enqueue(sized("ann big", 90, user="ann"))
    queue.enqueue(sized("ann small", 10, user="ann"))
    for number in range(3):
        queue.enqueue(sized(f"bob {number}", 10, user="bob"))
    assert ids(queue.get_requests(8, 40)) == ["ann small", "bob 0", "bob 1", "bob 2"]
    assert ids(queue.get_requests(8, 90)) == ["ann big"]


def test_users_that_are_gone_do_not_stay_in_memory() -> None:
    queue = fair_queue()
    for number in range(5_000):
        queue.enqueue(sized("r", user=f"user {number}"))
        queue.dequeue()
    assert queue._line._order.kept < 500
