"""Nodes that only some replicas know, or reach: nobody is sent where it cannot go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.coordination.leader.node_views import NodeViews
from forebay.core import (
    Arrived,
    Cancelled,
    Finished,
    NodeChanged,
    NodeRemoved,
    Reject,
    Returned,
    Route,
    Wait,
)

from . import pair
from .pair import LocalFleet, LocalReplica

ONE = NodeChanged("one", slots=1, models=("m",))
TWO = NodeChanged("two", slots=1, models=("m",))


def arrive(replica: LocalReplica, fleet: LocalFleet, *names: str) -> None:
    for name in names:
        replica.post(Arrived(name, "m"), fleet, settle=True)


def refused(replica: LocalReplica) -> dict[str, str]:
    return {action.id: action.code for action in replica.actions if isinstance(action, Reject)}


def nodes_of(replica: LocalReplica) -> dict[str, str]:
    return {held.arrival.id: held.node for held in replica.follower.tickets.values()}


@pytest.mark.parametrize("known", [(), (replace(TWO, state="offline"),)])
def test_a_replica_gets_no_slot_of_a_node_that_it_does_not_reach(
    known: tuple[NodeChanged, ...],
) -> None:
    fleet = LocalFleet()
    new = fleet.join("new-1", ONE, *known)
    old = fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a", "b")
    assert nodes_of(new) == {"a": "one", "b": ""}
    assert new.waiting == ["b"]  # and it is told so
    arrive(old, fleet, "c")
    assert nodes_of(old) == {"c": "two"}
    new.post(Finished("a"), fleet, settle=True)
    assert nodes_of(new) == {"b": "one"}


def test_the_place_in_line_is_kept_and_the_position_told() -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(old, fleet, "x", "y")
    arrive(new, fleet, "a", "b")
    arrive(old, fleet, "c")
    old.post(Finished(next(name for name, at in nodes_of(old).items() if at == "two")),
             fleet, settle=True)  # fmt: skip
    assert nodes_of(old)["c"] == "two"
    old.post(Finished(next(name for name, at in nodes_of(old).items() if at == "one")),
             fleet, settle=True)  # fmt: skip
    assert nodes_of(new) == {"a": "one", "b": ""}
    assert [(told.id, told.position) for told in new.actions if isinstance(told, Wait)] == [
        ("a", 1), ("b", 2)
    ]  # fmt: skip


def test_it_starts_there_as_soon_as_its_replica_has_heard_of_the_node() -> None:
    fleet = LocalFleet()
    new, _ = fleet.join("new-1"), fleet.join("old-1", TWO)
    arrive(new, fleet, "a")
    assert nodes_of(new) == {"a": ""}
    new.post(TWO, fleet, settle=True)
    assert nodes_of(new) == {"a": "two"}


def test_many_who_cannot_go_there_are_passed_over_one_after_the_other() -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(old, fleet, "x", "y")
    for number in range(90):
        new.post(Arrived(f"n{number}", "m"), fleet)
    fleet.settle()
    arrive(old, fleet, "z")
    old.post(Finished("y"), fleet)
    old.post(Finished("x"), fleet, settle=True)
    assert nodes_of(old) == {"z": "two"}
    assert new.started == ["n0"]
    for number in range(90):
        new.post(Cancelled(f"n{number}"), fleet, settle=True)
    assert fleet.leader.decisions.scheduler._book.entries.keys() == {"z"}


@pytest.mark.parametrize("known", [ONE, TWO])
def test_one_that_may_not_wait_starts_where_it_can(known: NodeChanged) -> None:
    fleet = LocalFleet()
    _, new = fleet.join("old-1", ONE, TWO), fleet.join("new-1", known)
    new.post(Arrived("a", "m", max_wait_s=0.0), fleet, settle=True)
    assert nodes_of(new) == {"a": known.name}


def test_no_slot_is_lent_to_those_who_cannot_use_it() -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, replace(TWO, slots=8))
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    assert "two" not in new.follower._borrowed.nodes
    assert "two" in old.follower._borrowed.nodes


def test_a_node_that_one_replica_forgets_is_still_there_for_the_others() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", TWO), fleet.join("two-1", TWO)
    one.post(NodeRemoved("two"), fleet, settle=True)
    arrive(one, fleet, "a")
    arrive(two, fleet, "b")
    assert nodes_of(one) == {"a": ""}
    assert nodes_of(two) == {"b": "two"}


def test_no_bound_is_passed_by_those_who_found_only_a_node_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair, "OPTIONS", replace(pair.OPTIONS, max_size=2))
    fleet = LocalFleet()
    new, _ = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a", "b", "c", "d", "e")
    assert new.started == ["a"]
    assert new.waiting == ["b", "c"]
    assert refused(new) == {"d": "queue_full", "e": "queue_full"}


def test_nobody_waits_for_a_node_in_reach_where_nobody_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair, "OPTIONS", replace(pair.OPTIONS, enabled=False))
    fleet = LocalFleet()
    new, _ = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a", "b")
    assert (new.started, refused(new)) == (["a"], {"b": "queue_disabled"})


def test_those_who_wait_for_another_node_start_on_one_that_comes_into_reach() -> None:
    fleet = LocalFleet()
    new, _ = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a", "b", "c")
    new.post(TWO, fleet, settle=True)
    assert nodes_of(new) == {"a": "one", "b": "two", "c": ""}
    new.post(Finished("b"), fleet, settle=True)
    assert nodes_of(new) == {"a": "one", "c": "two"}


def test_a_node_that_failed_a_ticket_is_not_given_back_to_it_when_it_comes_into_reach() -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a")
    arrive(old, fleet, "x")
    new.post(Returned("a"), fleet, settle=True)
    old.post(Finished("x"), fleet, settle=True)
    assert nodes_of(new) == {"a": ""}
    new.post(TWO, fleet, settle=True)
    assert nodes_of(new) == {"a": "two"}
    new.post(Returned("a"), fleet, settle=True)
    assert nodes_of(new) == {"a": ""}  # both have failed it
    new.post(TWO, fleet, settle=True)
    assert nodes_of(new) == {"a": "two"}  # and this is a good probe of the one


def test_one_that_may_not_wait_gets_a_slot_idle_on_loan_beside_a_node_out_of_reach() -> None:
    fleet = LocalFleet()
    wide = replace(ONE, slots=2)
    fleet.join("old-1", wide)
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    new, _ = fleet.join("new-1", wide), fleet.join("third-1", wide, TWO)
    arrive(new, fleet, "a")
    new.post(Arrived("b", "m", max_wait_s=0.0), fleet, settle=True)
    assert nodes_of(new) == {"a": "one", "b": "one"}


def test_who_was_passed_over_was_neither_started_nor_returned() -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(new, fleet, "a", "b")
    new.post(Finished("a"), fleet, settle=True)
    (first, second) = (action for action in new.actions if isinstance(action, Route))
    assert (first.attempt, second.attempt) == (1, 1)
    totals = fleet.observed()
    assert (totals.accepted, totals.enqueued, totals.returned) == (2, 1, 0)
    arrive(old, fleet, "c")
    assert nodes_of(old) == {"c": "two"}


def test_passing_over_a_long_line_takes_time_in_proportion_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = LocalFleet()
    new, old = fleet.join("new-1", ONE), fleet.join("old-1", ONE, TWO)
    arrive(old, fleet, "x", "y")
    looked_at: list[str] = []
    reaches = NodeViews.reaches

    def counted(views: NodeViews, member: str, node: str) -> bool:
        looked_at.append(member)
        return reaches(views, member, node)

    arrive(new, fleet, *(f"n{number}" for number in range(80)))
    monkeypatch.setattr(NodeViews, "reaches", counted)
    (on_two,) = (name for name, node in nodes_of(old).items() if node == "two")
    old.post(Finished(on_two), fleet, settle=True)
    assert len(looked_at) <= 2 * 80
    looked_at.clear()
    arrive(old, fleet, "z")
    assert nodes_of(old)["z"] == "two"
    assert len(looked_at) <= 5  # nobody is asked twice
