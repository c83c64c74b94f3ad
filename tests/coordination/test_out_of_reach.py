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
from .pair import Desk, Office

ONE = NodeChanged("one", slots=1, models=("m",))
TWO = NodeChanged("two", slots=1, models=("m",))


def arrive(desk: Desk, office: Office, *names: str) -> None:
    for name in names:
        desk.post(Arrived(name, "m"), office, settle=True)


def refused(desk: Desk) -> dict[str, str]:
    return {action.id: action.code for action in desk.actions if isinstance(action, Reject)}


def nodes_of(desk: Desk) -> dict[str, str]:
    return {held.arrival.id: held.node for held in desk.follower.tickets.values()}


@pytest.mark.parametrize("known", [(), (replace(TWO, state="offline"),)])
def test_a_replica_gets_no_slot_of_a_node_that_it_does_not_reach(
    known: tuple[NodeChanged, ...],
) -> None:
    office = Office()
    new = office.join("new-1", ONE, *known)
    old = office.join("old-1", ONE, TWO)
    arrive(new, office, "a", "b")
    assert nodes_of(new) == {"a": "one", "b": ""}
    assert new.waiting == ["b"]  # and it is told so
    arrive(old, office, "c")
    assert nodes_of(old) == {"c": "two"}
    new.post(Finished("a"), office, settle=True)
    assert nodes_of(new) == {"b": "one"}


def test_the_place_in_line_is_kept_and_the_position_told() -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(old, office, "x", "y")
    arrive(new, office, "a", "b")
    arrive(old, office, "c")
    old.post(Finished(next(name for name, at in nodes_of(old).items() if at == "two")),
             office, settle=True)  # fmt: skip
    assert nodes_of(old)["c"] == "two"
    old.post(Finished(next(name for name, at in nodes_of(old).items() if at == "one")),
             office, settle=True)  # fmt: skip
    assert nodes_of(new) == {"a": "one", "b": ""}
    assert [(told.id, told.position) for told in new.actions if isinstance(told, Wait)] == [
        ("a", 1), ("b", 2)
    ]  # fmt: skip


def test_it_starts_there_as_soon_as_its_replica_has_heard_of_the_node() -> None:
    office = Office()
    new, _ = office.join("new-1"), office.join("old-1", TWO)
    arrive(new, office, "a")
    assert nodes_of(new) == {"a": ""}
    new.post(TWO, office, settle=True)
    assert nodes_of(new) == {"a": "two"}


def test_many_who_cannot_go_there_are_passed_over_one_after_the_other() -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(old, office, "x", "y")
    for number in range(90):
        new.post(Arrived(f"n{number}", "m"), office)
    office.settle()
    arrive(old, office, "z")
    old.post(Finished("y"), office)
    old.post(Finished("x"), office, settle=True)
    assert nodes_of(old) == {"z": "two"}
    assert new.started == ["n0"]
    for number in range(90):
        new.post(Cancelled(f"n{number}"), office, settle=True)
    assert office.leader._scheduler._book.entries.keys() == {"z"}


@pytest.mark.parametrize("known", [ONE, TWO])
def test_one_that_may_not_wait_starts_where_it_can(known: NodeChanged) -> None:
    office = Office()
    _, new = office.join("old-1", ONE, TWO), office.join("new-1", known)
    new.post(Arrived("a", "m", max_wait_s=0.0), office, settle=True)
    assert nodes_of(new) == {"a": known.name}


def test_no_slot_is_lent_to_those_who_cannot_use_it() -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, replace(TWO, slots=8))
    office.leader.balance(office.now_s)
    office.settle()
    assert "two" not in new.follower._borrowed.nodes
    assert "two" in old.follower._borrowed.nodes


def test_a_node_that_one_replica_forgets_is_still_there_for_the_others() -> None:
    office = Office()
    one, two = office.join("one-1", TWO), office.join("two-1", TWO)
    one.post(NodeRemoved("two"), office, settle=True)
    arrive(one, office, "a")
    arrive(two, office, "b")
    assert nodes_of(one) == {"a": ""}
    assert nodes_of(two) == {"b": "two"}


def test_no_bound_is_passed_by_those_who_found_only_a_node_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair, "OPTIONS", replace(pair.OPTIONS, max_size=2))
    office = Office()
    new, _ = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(new, office, "a", "b", "c", "d", "e")
    assert new.started == ["a"]
    assert new.waiting == ["b", "c"]
    assert refused(new) == {"d": "queue_full", "e": "queue_full"}


def test_nobody_waits_for_a_node_in_reach_where_nobody_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair, "OPTIONS", replace(pair.OPTIONS, enabled=False))
    office = Office()
    new, _ = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(new, office, "a", "b")
    assert (new.started, refused(new)) == (["a"], {"b": "queue_disabled"})


def test_those_who_wait_for_another_node_start_on_one_that_comes_into_reach() -> None:
    office = Office()
    new, _ = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(new, office, "a", "b", "c")
    new.post(TWO, office, settle=True)
    assert nodes_of(new) == {"a": "one", "b": "two", "c": ""}
    new.post(Finished("b"), office, settle=True)
    assert nodes_of(new) == {"a": "one", "c": "two"}


def test_a_node_that_failed_a_ticket_is_not_given_back_to_it_when_it_comes_into_reach() -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(new, office, "a")
    arrive(old, office, "x")
    new.post(Returned("a"), office, settle=True)
    old.post(Finished("x"), office, settle=True)
    assert nodes_of(new) == {"a": ""}
    new.post(TWO, office, settle=True)
    assert nodes_of(new) == {"a": "two"}
    new.post(Returned("a"), office, settle=True)
    assert nodes_of(new) == {"a": ""}  # both have failed it
    new.post(TWO, office, settle=True)
    assert nodes_of(new) == {"a": "two"}  # and this is a good probe of the one


def test_one_that_may_not_wait_gets_a_slot_idle_on_loan_beside_a_node_out_of_reach() -> None:
    office = Office()
    wide = replace(ONE, slots=2)
    office.join("old-1", wide)
    office.leader.balance(office.now_s)
    office.settle()
    new, _ = office.join("new-1", wide), office.join("third-1", wide, TWO)
    arrive(new, office, "a")
    new.post(Arrived("b", "m", max_wait_s=0.0), office, settle=True)
    assert nodes_of(new) == {"a": "one", "b": "one"}


def test_who_was_passed_over_was_neither_started_nor_returned() -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(new, office, "a", "b")
    new.post(Finished("a"), office, settle=True)
    (first, second) = (action for action in new.actions if isinstance(action, Route))
    assert (first.attempt, second.attempt) == (1, 1)
    totals = office.observed()
    assert (totals.accepted, totals.enqueued, totals.returned) == (2, 1, 0)
    arrive(old, office, "c")
    assert nodes_of(old) == {"c": "two"}


def test_passing_over_a_long_line_takes_time_in_proportion_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office = Office()
    new, old = office.join("new-1", ONE), office.join("old-1", ONE, TWO)
    arrive(old, office, "x", "y")
    looked_at: list[str] = []
    reaches = NodeViews.reaches

    def counted(views: NodeViews, member: str, node: str) -> bool:
        looked_at.append(member)
        return reaches(views, member, node)

    arrive(new, office, *(f"n{number}" for number in range(80)))
    monkeypatch.setattr(NodeViews, "reaches", counted)
    (on_two,) = (name for name, node in nodes_of(old).items() if node == "two")
    old.post(Finished(on_two), office, settle=True)
    assert len(looked_at) <= 2 * 80
    looked_at.clear()
    arrive(old, office, "z")
    assert nodes_of(old)["z"] == "two"
    assert len(looked_at) <= 5  # nobody is asked twice
