"""Who said how long it will wait hears of its end in time, even if the leader says nothing."""

from __future__ import annotations

from math import inf

import pytest

from forebay.coordination.follower.local_ticket import LocalTicket
from forebay.coordination.follower.wait_limits import GRACE_S, SWEEP_SLACK, WaitLimits
from forebay.coordination.leader.deferred_decisions import DEFER_S
from forebay.core import Arrived, Expire, Finished, NodeChanged, Returned, Route

from ..pair import LocalFleet, LocalReplica

GPU = NodeChanged("gpu1", slots=1, models=("m",))
LIMIT_S = 2.0


def expired(replica: LocalReplica) -> list[tuple[str, float]]:
    ends = [action for action in replica.actions if isinstance(action, Expire)]
    return sorted((end.id, round(end.waited_s, 6)) for end in ends)


def tick(replica: LocalReplica, fleet: LocalFleet) -> None:
    replica.actions += replica.follower.tick(fleet.now_s)


def busy(fleet: LocalFleet) -> LocalReplica:
    """Return a replica whose only slot is taken."""
    replica = fleet.join("one-1", GPU)
    replica.post(Arrived("runs", "m"), fleet, settle=True)
    return replica


def test_a_leader_that_falls_silent_costs_nobody_more_than_a_moment() -> None:
    fleet = LocalFleet()
    replica = busy(fleet)
    replica.post(Arrived("waits", "m", max_wait_s=LIMIT_S), fleet, settle=True)
    replica.post(Arrived("asks", "m", max_wait_s=LIMIT_S), fleet)  # nothing is heard from here on
    fleet.now_s += LIMIT_S
    tick(replica, fleet)
    assert expired(replica) == []  # the leader may still say so itself
    due_s = replica.follower.next_deadline_s()
    assert due_s == pytest.approx(fleet.now_s + GRACE_S)
    fleet.now_s = due_s or 0.0
    tick(replica, fleet)
    assert expired(replica) == [("asks", LIMIT_S + GRACE_S), ("waits", LIMIT_S + GRACE_S)]
    fleet.settle()  # and the leader, if it is there after all, does not keep them
    replica.post(Finished("runs"), fleet, settle=True)
    assert replica.started == ["runs"]
    assert set(fleet.leader.decisions.scheduler._book.entries) == set()


def test_where_the_leader_says_it_in_time_nothing_is_said_twice() -> None:
    fleet = LocalFleet()
    replica = busy(fleet)
    replica.post(Arrived("waits", "m", max_wait_s=LIMIT_S), fleet, settle=True)
    fleet.now_s += LIMIT_S
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    fleet.now_s += GRACE_S
    tick(replica, fleet)
    assert expired(replica) == [("waits", LIMIT_S)]


def test_one_that_will_not_wait_is_told_when_its_refusal_cannot_be_held_back_any_longer() -> None:
    fleet = LocalFleet()
    replica = busy(fleet)
    replica.post(Arrived("hurries", "m", max_wait_s=0.0), fleet)
    fleet.now_s += DEFER_S
    tick(replica, fleet)
    assert expired(replica) == []
    fleet.now_s += GRACE_S
    tick(replica, fleet)
    assert [name for name, _ in expired(replica)] == ["hurries"]


def test_who_came_while_nobody_led_has_waited_since_then() -> None:
    fleet = LocalFleet()
    replica = busy(fleet)
    replica.follower.seek(fleet.now_s)
    replica.post(Arrived("asks", "m", max_wait_s=LIMIT_S), fleet)
    fleet.now_s += 1.5
    fleet.take_over(replica)
    assert replica.waiting == ["asks"]
    fleet.now_s += 0.5 + GRACE_S
    tick(replica, fleet)
    assert expired(replica) == [("asks", LIMIT_S + GRACE_S)]


def test_the_time_in_which_it_ran_is_not_counted() -> None:
    fleet = LocalFleet()
    replica = fleet.join("one-1", GPU)
    replica.post(Arrived("a", "m", max_wait_s=LIMIT_S), fleet, settle=True)
    fleet.now_s += 100.0
    tick(replica, fleet)
    fleet.take_over(replica)  # it was silent for long
    replica.post(Returned("a"), fleet)
    replica.post(Arrived("b", "m"), fleet)
    fleet.now_s += LIMIT_S
    tick(replica, fleet)
    assert expired(replica) == []
    fleet.now_s += GRACE_S
    tick(replica, fleet)
    assert [name for name, _ in expired(replica)] == ["a"]


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
