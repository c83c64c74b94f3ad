"""Who may not wait starts in a slot that is idle on loan; or is refused after a moment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.coordination.leader.deferred_decisions import DEFER_S
from forebay.core import (
    Arrived,
    Cancelled,
    Describe,
    Finished,
    Inspected,
    NodeChanged,
    NodeRested,
    Reject,
    Revoked,
    Route,
    Ticked,
)

from ..pair import OPTIONS, LocalFleet, LocalReplica

GPU = NodeChanged("gpu1", slots=2, models=("m",))
THREE = NodeChanged("gpu1", slots=3, models=("m",))
SECOND = NodeChanged("gpu3", slots=1, models=("m",))
OTHER = NodeChanged("gpu2", slots=1, models=("other",))


def codes(replica: LocalReplica) -> list[str]:
    return [action.code for action in replica.actions if isinstance(action, Reject)]


def impatient(name: str, model: str = "m") -> Arrived:
    return Arrived(name, model, max_wait_s=0.0)


def lent_to_two(fleet: LocalFleet) -> tuple[LocalReplica, LocalReplica]:
    """Return two replicas; both slots are on loan to the second."""
    one, two = fleet.join("one-1", GPU, OTHER), fleet.join("two-1", GPU, OTHER)
    fleet.replicas[fleet.name].post(GPU, fleet, settle=True)
    for name in ("x", "y"):
        two.post(Arrived(name, "m"), fleet, settle=True)
    for name in ("x", "y"):
        two.post(Finished(name), fleet, settle=True)
    lent = {each.about.member: each.lent for each in fleet.leader.statuses(fleet.now_s)}
    assert lent["two-1"] == 2
    return one, two


@pytest.mark.parametrize("who", ["another replica", "the leader"])
def test_one_that_may_not_wait_has_the_slot_that_is_idle_elsewhere(who: str) -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    asker = one if who == "another replica" else fleet.replicas[fleet.name]
    asker.post(impatient("a"), fleet, settle=True)
    asker.post(impatient("b"), fleet, settle=True)
    assert asker.started == ["a", "b"]
    assert codes(asker) == []
    assert fleet.observed().rejected.get("deadline_unreachable", 0) == 0
    asker.post(impatient("c"), fleet, settle=True)
    assert codes(asker) == ["deadline_unreachable"]
    assert fleet.observed().rejected["deadline_unreachable"] == 1
    assert fleet.observed().accepted == 4


def test_a_full_line_for_another_model_refuses_nobody_whose_slot_is_on_loan() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    for number in range(OPTIONS.max_size + 1):
        one.post(Arrived(f"r{number}", "other"), fleet, settle=True)
    for name in ("a", "b"):
        one.post(Arrived(name, "m"), fleet, settle=True)
    assert one.started == ["r0", "a", "b"]
    assert codes(one) == []


def test_if_no_slot_comes_back_it_is_refused_after_a_moment_and_only_once() -> None:
    fleet = LocalFleet()
    one, two = lent_to_two(fleet)
    del fleet.replicas["two-1"]  # it is frozen: nothing reaches it
    one.post(impatient("a"), fleet, settle=True)
    assert codes(one) == []
    fleet.leader.tick(fleet.now_s)
    due_s = fleet.leader.next_deadline_s()
    assert due_s is not None
    assert due_s == pytest.approx(fleet.now_s + DEFER_S)
    fleet.now_s = due_s
    fleet.leader.tick(due_s)
    fleet.settle()
    assert codes(one) == ["deadline_unreachable"]
    assert fleet.observed().rejected["deadline_unreachable"] == 1
    assert two.started == ["x", "y"]


def test_no_more_are_held_back_than_slots_seem_idle() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    del fleet.replicas["two-1"]
    for name in ("a", "b", "c"):
        one.post(impatient(name), fleet, settle=True)
    assert [action.id for action in one.actions if isinstance(action, Reject)] == ["c"]


def test_a_slot_that_was_in_use_after_all_refuses_the_second() -> None:
    fleet = LocalFleet()
    one, two = lent_to_two(fleet)
    two.post(Arrived("z", "m"), fleet)  # it starts there, and the leader has not heard of it
    one.post(impatient("a"), fleet)
    one.post(impatient("b"), fleet)
    fleet.settle()
    assert (one.started, codes(one)) == (["a"], ["deadline_unreachable"])


def test_a_slot_that_is_of_no_use_is_not_the_last_word_while_others_are_on_their_way() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", GPU, SECOND), fleet.join("two-1", GPU, SECOND)
    for name in ("w", "x", "y"):
        two.post(Arrived(name, "m"), fleet, settle=True)
    for name in ("w", "x", "y"):
        two.post(Finished(name), fleet, settle=True)
    one.post(NodeRested("gpu1", 60.0), fleet, settle=True)  # it said that it is busy
    one.post(impatient("a"), fleet, settle=True)
    assert (one.started, codes(one)) == (["a"], [])
    assert next(action for action in one.actions if isinstance(action, Route)).node == "gpu3"


def test_one_that_gives_up_meanwhile_leaves_nothing_behind() -> None:
    fleet = LocalFleet()
    one, two = lent_to_two(fleet)
    replica = fleet.replicas.pop("two-1")
    one.post(impatient("a"), fleet, settle=True)
    one.post(Cancelled("a"), fleet, settle=True)
    fleet.replicas["two-1"] = replica
    fleet.settle()
    one.post(Ticked(), fleet, settle=True)
    assert (one.started, codes(one)) == ([], [])
    for name in ("b", "c"):
        one.post(impatient(name), fleet, settle=True)
    assert one.started == ["b", "c"]
    assert two.started == ["x", "y"]


def test_one_whose_replica_announces_anew_is_counted_once() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    replica = fleet.replicas.pop("two-1")
    one.post(impatient("a"), fleet, settle=True)
    fleet.take_over(one)
    fleet.replicas["two-1"] = replica
    fleet.settle()
    assert one.started == ["a"]
    seen = fleet.observed()
    assert (seen.accepted, seen.cancelled, sum(seen.rejected.values())) == (3, 0, 0)


def test_one_whose_refusal_is_never_counted_takes_none_out_of_the_count() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    del fleet.replicas["two-1"]
    for number in range(OPTIONS.max_size + 2):
        one.post(Arrived(f"r{number}", "other"), fleet, settle=True)
    assert fleet.observed().rejected == {"queue_full": 1}
    one.post(Arrived("a", "m", patient=True), fleet, settle=True)
    assert codes(one) == ["queue_full"]  # that of before
    assert fleet.observed().rejected == {"queue_full": 1}


def test_one_that_someone_ends_meanwhile_is_told_so_and_does_not_start() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    replica = fleet.replicas.pop("two-1")
    one.post(impatient("a"), fleet, settle=True)
    one.post(Revoked("a", "cancelled"), fleet, settle=True)
    assert codes(one) == ["cancelled"]
    fleet.replicas["two-1"] = replica
    fleet.settle()
    assert one.started == []
    seen = fleet.observed()
    assert (seen.accepted, seen.cancelled, sum(seen.rejected.values())) == (2, 0, 0)


def test_those_held_back_for_other_slots_are_not_in_the_way() -> None:
    fleet = LocalFleet()
    one, two = lent_to_two(fleet)
    two.post(Arrived("z", "other"), fleet, settle=True)
    two.post(Finished("z"), fleet, settle=True)
    replica = fleet.replicas.pop("two-1")
    one.post(impatient("a"), fleet, settle=True)
    one.post(impatient("b"), fleet, settle=True)
    one.post(impatient("c", "other"), fleet, settle=True)
    assert codes(one) == []
    fleet.replicas["two-1"] = replica
    fleet.settle()
    assert sorted(one.started) == ["a", "b", "c"]


def test_one_that_asked_again_in_vain_keeps_its_place() -> None:
    fleet = LocalFleet()
    single = NodeChanged("gpu1", slots=1, models=("m",))
    one, two = fleet.join("one-1", single, SECOND), fleet.join("two-1", single, SECOND)
    for name in ("x", "y"):
        two.post(Arrived(name, "m"), fleet, settle=True)
    for name in ("x", "y"):
        two.post(Finished(name), fleet, settle=True)
    one.post(NodeRested("gpu1", 60.0), fleet, settle=True)  # its slot comes first, for nothing
    replica = fleet.replicas.pop("two-1")
    one.post(impatient("a"), fleet, settle=True)
    one.post(impatient("b"), fleet, settle=True)
    fleet.replicas["two-1"] = replica
    fleet.settle()
    assert (one.started, codes(one)) == (["a"], ["deadline_unreachable"])


def test_one_who_asks_meanwhile_hears_that_it_waits() -> None:
    fleet = LocalFleet()
    one, _ = lent_to_two(fleet)
    del fleet.replicas["two-1"]  # it is frozen: nothing reaches it
    for name in ("a", "b"):
        one.post(impatient(name), fleet, settle=True)
    fleet.now_s += DEFER_S / 2
    for name in ("a", "b"):
        one.post(Inspected(name), fleet, settle=True)
    seen = [action for action in one.actions if isinstance(action, Describe)]
    assert [(each.id, each.state, each.reason, each.position) for each in seen] == [
        ("a", "waiting", "busy", 1),
        ("b", "waiting", "busy", 2),
    ]
    assert [each.waited_s for each in seen] == pytest.approx([DEFER_S / 2] * 2)
    fleet.now_s += DEFER_S
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    assert codes(one) == ["deadline_unreachable"] * 2


def with_a_loan_in_use(fleet: LocalFleet) -> tuple[LocalReplica, LocalReplica]:
    """Return two replicas; what a third has on loan is in use, and nobody knows.

    The third slot is in use by the leader's own replica.
    """
    one, two, three = (fleet.join(name, THREE, OTHER) for name in ("one-1", "two-1", "three-1"))
    fleet.replicas[fleet.name].post(THREE, fleet, settle=True)
    for name in ("x", "y"):
        three.post(Arrived(name, "m"), fleet, settle=True)
    for name in ("x", "y"):
        three.post(Finished(name), fleet, settle=True)
    for name in ("v", "w"):
        three.post(Arrived(name, "m"), fleet)
    del fleet.replicas["three-1"]
    assert three.started == ["x", "y", "v", "w"]
    return one, two


@pytest.mark.parametrize("who", ["another replica", "the leader"])
@pytest.mark.parametrize("ending", [Finished("t"), Cancelled("t")])
def test_a_slot_that_comes_free_elsewhere_meanwhile_is_for_the_one_held_back(
    who: str, ending: Finished | Cancelled
) -> None:
    fleet = LocalFleet()
    one, two = with_a_loan_in_use(fleet)
    runs = two if who == "another replica" else fleet.replicas[fleet.name]
    runs.post(Arrived("t", "m"), fleet, settle=True)
    one.post(impatient("a"), fleet, settle=True)
    assert (one.started, codes(one)) == ([], [])
    runs.post(ending, fleet, settle=True)
    runs.post(impatient("b"), fleet, settle=True)
    assert (one.started, runs.started) == (["a"], ["t"])


def test_who_waits_after_all_has_loans_called_back_like_anyone() -> None:
    fleet = LocalFleet()
    fleet.leader.change_options(replace(OPTIONS, per_user_max=1), fleet.now_s)
    one, two = with_a_loan_in_use(fleet)
    two.post(Arrived("t", "m"), fleet, settle=True)
    one.post(Arrived("r", "other", user="u"), fleet, settle=True)
    one.post(Arrived("s", "other", user="u"), fleet, settle=True)
    one.post(NodeRested("gpu1", 60.0), fleet, settle=True)
    one.post(Arrived("a", "m", user="u"), fleet, settle=True)  # its user has one in line
    two.post(Finished("t"), fleet, settle=True)  # this slot stays there: nobody waits for it
    one.post(Finished("r"), fleet, settle=True)  # now its user has a place again
    fleet.now_s += DEFER_S
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    assert one.waiting == ["s", "a"]
    lent = {each.about.member: each.lent for each in fleet.leader.statuses(fleet.now_s)}
    assert lent["two-1"] == 0
