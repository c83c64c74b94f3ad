"""When the clock reaches a tag, by who has how much waiting and how often each comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.core.backlogs import MEMORY_S, Backlogs
from forebay.core.records import Account, User

if TYPE_CHECKING:
    from collections.abc import Iterable

CAPACITY = 1.0
MOST_S = 1000.0


def send(backlogs: Backlogs, account: Account, times_s: Iterable[float]) -> None:
    for at_s in times_s:
        account.live += 1
        backlogs.join(account, 1.0, at_s)


def serve(backlogs: Backlogs, account: Account, count: int) -> None:
    for _ in range(count):
        account.live -= 1
        backlogs.leave(account, 1.0)


def users(count: int) -> list[Account]:
    return [Account(User(str(number)), 0.0, 1.0) for number in range(count)]


def reached_s(backlogs: Backlogs, mine: Account, distance: float, usual: float = 0.0) -> float:
    """Return when a tag is reached that is behind 10 others, a minute after the first arrival."""
    per_s = backlogs.per_s(60.0, usual)
    return backlogs.reach_s(distance, 10.0, mine, CAPACITY, MOST_S, per_s)


def test_nothing_more_of_who_has_more_waiting_than_goes_before() -> None:
    """The heavy user came 40 times in a minute; all of it waits, and none of it delays another."""
    backlogs, (mine, heavy) = Backlogs(), users(2)
    send(backlogs, mine, [0.0])
    send(backlogs, heavy, range(1, 41))
    assert reached_s(backlogs, mine, 2.0) == pytest.approx(10.0)


def test_who_comes_often_and_has_little_waiting_goes_before() -> None:
    """As often as in the other test, but served each time: it may come twice before the tag."""
    backlogs, (mine, frequent) = Backlogs(), users(2)
    send(backlogs, mine, [0.0])
    for at_s in range(1, 41):
        send(backlogs, frequent, [at_s])
        if at_s < 40:
            serve(backlogs, frequent, 1)
    assert reached_s(backlogs, mine, 3.0) == pytest.approx(12.0)


def test_who_has_nothing_waiting_may_come_at_any_time() -> None:
    """30 in a minute are half a second's capacity each second."""
    backlogs, (mine, *others) = Backlogs(), users(31)
    send(backlogs, mine, [0.0])
    for number, account in enumerate(others):
        send(backlogs, account, [2.0 * number])
        serve(backlogs, account, 1)
    assert reached_s(backlogs, mine, 2.0) == pytest.approx(20.0, rel=0.1)


def test_no_more_is_expected_than_has_usually_come() -> None:
    backlogs, (mine, *others) = Backlogs(), users(60)
    send(backlogs, mine, [0.0])
    for number, account in enumerate(others):
        send(backlogs, account, [float(number)])
        serve(backlogs, account, 1)
    assert reached_s(backlogs, mine, 2.0) == MOST_S  # as much as can be served
    assert reached_s(backlogs, mine, 2.0, usual=0.5) == pytest.approx(20.0, rel=0.1)


def test_how_often_a_user_comes_is_known_when_it_comes_back() -> None:
    backlogs, (mine, heavy) = Backlogs(), users(2)
    send(backlogs, mine, [0.0])
    send(backlogs, heavy, range(1, 41))
    serve(backlogs, heavy, 40)
    backlogs.remember("heavy", heavy, 10)
    back = Account(User("heavy"), 0.0, 1.0)
    backlogs.recall("heavy", back)
    send(backlogs, back, [50.0] * 8)
    assert reached_s(backlogs, mine, 2.0) == pytest.approx(10.0)
    stranger = Account(User("stranger"), 0.0, 1.0)
    backlogs.recall("stranger", stranger)
    assert stranger.came == 0.0


def test_of_invented_names_only_so_many_are_remembered() -> None:
    backlogs, (account,) = Backlogs(), users(1)
    account.came = 1.0
    for number in range(50):
        backlogs.remember(str(number), account, 20)
    assert list(backlogs._others) == [str(number) for number in range(30, 50)]


def test_what_came_long_ago_is_forgotten_wherever_its_user_is_now() -> None:
    """Weights are scaled anew after some time, those of idle users when they come back."""
    backlogs, (mine, before) = Backlogs(), users(2)
    send(backlogs, before, range(40))
    serve(backlogs, before, 40)
    later_s = 30.0 * MEMORY_S
    send(backlogs, mine, [later_s])
    send(backlogs, before, [later_s])
    assert before.came == pytest.approx(1.0)
    per_s = backlogs.per_s(later_s, 0.0)
    assert backlogs.reach_s(2.0, 10.0, mine, CAPACITY, MOST_S, per_s) == pytest.approx(
        10.0, rel=0.1
    )
