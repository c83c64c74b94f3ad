"""Who said how long it will wait hears of its end in time, even if the leader says nothing."""

from __future__ import annotations

from math import inf

import pytest

from forebay.coordination.follower.local_ticket import LocalTicket
from forebay.coordination.follower.wait_limits import GRACE_S, SWEEP_SLACK, WaitLimits
from forebay.coordination.leader.deferred_rejections import DEFER_S
from forebay.core import Arrived, Expire, Finished, NodeChanged, Returned, Route

from ..pair import Desk, Office

GPU = NodeChanged("gpu1", slots=1, models=("m",))
LIMIT_S = 2.0


def expired(desk: Desk) -> list[tuple[str, float]]:
    ends = [action for action in desk.actions if isinstance(action, Expire)]
    return sorted((end.id, round(end.waited_s, 6)) for end in ends)


def tick(desk: Desk, office: Office) -> None:
    desk.actions += desk.follower.tick(office.now_s)


def busy(office: Office) -> Desk:
    """Return a replica whose only slot is taken."""
    desk = office.join("one-1", GPU)
    desk.post(Arrived("runs", "m"), office, settle=True)
    return desk


def test_a_leader_that_falls_silent_costs_nobody_more_than_a_moment() -> None:
    office = Office()
    desk = busy(office)
    desk.post(Arrived("waits", "m", max_wait_s=LIMIT_S), office, settle=True)
    desk.post(Arrived("asks", "m", max_wait_s=LIMIT_S), office)  # nothing is heard from here on
    office.now_s += LIMIT_S
    tick(desk, office)
    assert expired(desk) == []  # the leader may still say so itself
    due_s = desk.follower.next_deadline_s()
    assert due_s == pytest.approx(office.now_s + GRACE_S)
    office.now_s = due_s or 0.0
    tick(desk, office)
    assert expired(desk) == [("asks", LIMIT_S + GRACE_S), ("waits", LIMIT_S + GRACE_S)]
    office.settle()  # and the leader, if it is there after all, does not keep them
    desk.post(Finished("runs"), office, settle=True)
    assert desk.started == ["runs"]
    assert set(office.leader._scheduler._book.entries) == set()


def test_where_the_leader_says_it_in_time_nothing_is_said_twice() -> None:
    office = Office()
    desk = busy(office)
    desk.post(Arrived("waits", "m", max_wait_s=LIMIT_S), office, settle=True)
    office.now_s += LIMIT_S
    office.leader.tick(office.now_s)
    office.settle()
    office.now_s += GRACE_S
    tick(desk, office)
    assert expired(desk) == [("waits", LIMIT_S)]


def test_one_that_will_not_wait_is_told_when_its_refusal_cannot_be_held_back_any_longer() -> None:
    office = Office()
    desk = busy(office)
    desk.post(Arrived("hurries", "m", max_wait_s=0.0), office)
    office.now_s += DEFER_S
    tick(desk, office)
    assert expired(desk) == []
    office.now_s += GRACE_S
    tick(desk, office)
    assert [name for name, _ in expired(desk)] == ["hurries"]


def test_who_came_while_nobody_led_has_waited_since_then() -> None:
    office = Office()
    desk = busy(office)
    desk.follower.seek()
    desk.post(Arrived("asks", "m", max_wait_s=LIMIT_S), office)
    office.now_s += 1.5
    office.take_over(desk)
    assert desk.waiting == ["asks"]
    office.now_s += 0.5 + GRACE_S
    tick(desk, office)
    assert expired(desk) == [("asks", LIMIT_S + GRACE_S)]


def test_the_time_in_which_it_ran_is_not_counted() -> None:
    office = Office()
    desk = office.join("one-1", GPU)
    desk.post(Arrived("a", "m", max_wait_s=LIMIT_S), office, settle=True)
    office.now_s += 100.0
    tick(desk, office)
    office.take_over(desk)  # it was silent for long
    desk.post(Returned("a"), office)
    desk.post(Arrived("b", "m"), office)
    office.now_s += LIMIT_S
    tick(desk, office)
    assert expired(desk) == []
    office.now_s += GRACE_S
    tick(desk, office)
    assert [name for name, _ in expired(desk)] == ["a"]


def test_one_that_comes_back_when_it_is_looked_at_is_looked_at_again() -> None:
    tickets = {"a": LocalTicket(Arrived("a", "m"), 0.0)}
    limits = WaitLimits(tickets)
    limits.watch(tickets["a"], LIMIT_S, 0.0)
    tickets["a"].run(Route("a", "gpu1", waited_s=1.0), 1.0)
    tickets["a"].requeue(LIMIT_S, exclude=True)
    limits.watch(tickets["a"], LIMIT_S, LIMIT_S)
    assert limits.take_expired(LIMIT_S + GRACE_S) == []  # it has waited for one of two seconds
    (end,) = limits.take_expired(LIMIT_S + 1.0 + 2 * GRACE_S)  # though it is in the heap twice
    assert end.id == "a"


def test_jobs_and_who_may_wait_for_ever_are_not_watched() -> None:
    limits = WaitLimits({})
    limits.watch(LocalTicket(Arrived("job", "m", job=True), 0.0), LIMIT_S, 0.0)
    limits.watch(LocalTicket(Arrived("patient", "m"), 0.0), inf, 0.0)
    assert limits.next_s is None


def test_those_that_ended_are_swept_out() -> None:
    tickets: dict[str, LocalTicket] = {}
    limits = WaitLimits(tickets)
    for number in range(10_000):
        ticket = tickets[f"r{number}"] = LocalTicket(Arrived(f"r{number}", "m"), 0.0)
        limits.watch(ticket, LIMIT_S, 0.0)
        del tickets[f"r{number}"]
    assert len(limits._heap) <= SWEEP_SLACK + 2
