"""Round robin is exact: weights 1 and costs 1 give turns in turn, one user alone exact FIFO."""

from collections import Counter
from itertools import repeat
from random import Random

import pytest

from forebay.core import Scheduler
from forebay.core.actions import Route
from forebay.core.events import Arrived, Finished, NodeChanged


def order_of(arrivals: list[str], slots: int = 1) -> list[str]:
    """Return who starts when, with one running first so that all of them wait together."""
    scheduler = Scheduler()
    scheduler.handle(NodeChanged("n", slots, ("m",)), 0.0)
    running = []
    for number in range(slots):
        scheduler.handle(Arrived(f"first{number}", "m", user=f"nobody{number}"), 0.0)
        running.append(f"first{number}")
    for number, user in enumerate(arrivals):
        scheduler.handle(Arrived(f"{user}.{number}", "m", user=user), 0.0)
    order: list[str] = []
    while running:
        for action in scheduler.handle(Finished(running.pop(0)), 1.0 + len(order)):
            assert isinstance(action, Route)
            order.append(action.id)
            running.append(action.id)
    return order


def users(order: list[str]) -> str:
    return "".join(request_id.split(".")[0] for request_id in order)


def turns_in_turn(arrivals: list[str]) -> list[str]:
    """The plain definition: everyone's first, then everyone's second; each round as they came."""
    rounds: dict[int, list[str]] = {}
    sent: Counter[str] = Counter()
    for number, user in enumerate(arrivals):
        rounds.setdefault(sent[user], []).append(f"{user}.{number}")
        sent[user] += 1
    return [request_id for turn in sorted(rounds) for request_id in rounds[turn]]


def test_five_of_a_and_two_of_b_alternate_while_both_wait() -> None:
    assert users(order_of(list("AAAAABB"))) == "ABABAAA"


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_every_mixture_of_users_gets_turns_in_turn(seed: int, slots: int) -> None:
    random = Random(seed)
    names = "ABCDEFG"[: random.randint(1, 7)]
    arrivals = [random.choice(names) for _ in range(random.randint(1, 60))]
    assert order_of(arrivals, slots) == turns_in_turn(arrivals)


def test_one_user_alone_is_served_in_order_of_arrival() -> None:
    order = order_of(list(repeat("A", 30)))
    assert order == [f"A.{number}" for number in range(30)]


@pytest.mark.parametrize("seed", range(5))
def test_each_users_own_requests_keep_their_order(seed: int) -> None:
    random = Random(seed)
    order = order_of([random.choice("ABC") for _ in range(40)])
    for user in "ABC":
        numbers = [int(one.split(".")[1]) for one in order if one.startswith(user)]
        assert numbers == sorted(numbers)
