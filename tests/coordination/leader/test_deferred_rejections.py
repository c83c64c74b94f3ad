"""Who may not wait starts in a slot that is idle on loan; or is refused after a moment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.coordination.leader.deferred_rejections import DEFER_S
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

from ..pair import OPTIONS, Desk, Office

GPU = NodeChanged("gpu1", slots=2, models=("m",))
THREE = NodeChanged("gpu1", slots=3, models=("m",))
SECOND = NodeChanged("gpu3", slots=1, models=("m",))
OTHER = NodeChanged("gpu2", slots=1, models=("other",))


def codes(desk: Desk) -> list[str]:
    return [action.code for action in desk.actions if isinstance(action, Reject)]


def impatient(name: str, model: str = "m") -> Arrived:
    return Arrived(name, model, max_wait_s=0.0)


def lent_to_two(office: Office) -> tuple[Desk, Desk]:
    """Return two replicas; both slots are on loan to the second."""
    one, two = office.join("one-1", GPU, OTHER), office.join("two-1", GPU, OTHER)
    office.desks[office.name].post(GPU, office, settle=True)
    for name in ("x", "y"):
        two.post(Arrived(name, "m"), office, settle=True)
    for name in ("x", "y"):
        two.post(Finished(name), office, settle=True)
    lent = {each.about.member: each.lent for each in office.leader.statuses(office.now_s)}
    assert lent["two-1"] == 2
    return one, two


@pytest.mark.parametrize("who", ["another replica", "the leader"])
def test_one_that_may_not_wait_has_the_slot_that_is_idle_elsewhere(who: str) -> None:
    office = Office()
    one, _ = lent_to_two(office)
    asker = one if who == "another replica" else office.desks[office.name]
    asker.post(impatient("a"), office, settle=True)
    asker.post(impatient("b"), office, settle=True)
    assert asker.started == ["a", "b"]
    assert codes(asker) == []
    assert office.observed().rejected.get("deadline_unreachable", 0) == 0
    asker.post(impatient("c"), office, settle=True)
    assert codes(asker) == ["deadline_unreachable"]
    assert office.observed().rejected["deadline_unreachable"] == 1
    assert office.observed().accepted == 4


def test_a_full_line_for_another_model_refuses_nobody_whose_slot_is_on_loan() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    for number in range(OPTIONS.max_size + 1):
        one.post(Arrived(f"r{number}", "other"), office, settle=True)
    for name in ("a", "b"):
        one.post(Arrived(name, "m"), office, settle=True)
    assert one.started == ["r0", "a", "b"]
    assert codes(one) == []


def test_if_no_slot_comes_back_it_is_refused_after_a_moment_and_only_once() -> None:
    office = Office()
    one, two = lent_to_two(office)
    del office.desks["two-1"]  # it is frozen: nothing reaches it
    one.post(impatient("a"), office, settle=True)
    assert codes(one) == []
    office.leader.tick(office.now_s)
    due_s = office.leader.next_deadline_s()
    assert due_s is not None
    assert due_s == pytest.approx(office.now_s + DEFER_S)
    office.now_s = due_s
    office.leader.tick(due_s)
    office.settle()
    assert codes(one) == ["deadline_unreachable"]
    assert office.observed().rejected["deadline_unreachable"] == 1
    assert two.started == ["x", "y"]


def test_no_more_are_held_back_than_slots_seem_idle() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    del office.desks["two-1"]
    for name in ("a", "b", "c"):
        one.post(impatient(name), office, settle=True)
    assert [action.id for action in one.actions if isinstance(action, Reject)] == ["c"]


def test_a_slot_that_was_in_use_after_all_refuses_the_second() -> None:
    office = Office()
    one, two = lent_to_two(office)
    two.post(Arrived("z", "m"), office)  # it starts there, and the leader has not heard of it
    one.post(impatient("a"), office)
    one.post(impatient("b"), office)
    office.settle()
    assert (one.started, codes(one)) == (["a"], [])
    office.now_s += DEFER_S
    office.leader.tick(office.now_s)
    office.settle()
    assert codes(one) == ["deadline_unreachable"]


def test_a_slot_that_is_of_no_use_is_not_the_last_word_while_others_are_on_their_way() -> None:
    office = Office()
    one, two = office.join("one-1", GPU, SECOND), office.join("two-1", GPU, SECOND)
    for name in ("w", "x", "y"):
        two.post(Arrived(name, "m"), office, settle=True)
    for name in ("w", "x", "y"):
        two.post(Finished(name), office, settle=True)
    one.post(NodeRested("gpu1", 60.0), office, settle=True)  # it said that it is busy
    one.post(impatient("a"), office, settle=True)
    assert (one.started, codes(one)) == (["a"], [])
    assert next(action for action in one.actions if isinstance(action, Route)).node == "gpu3"


def test_one_that_gives_up_meanwhile_leaves_nothing_behind() -> None:
    office = Office()
    one, two = lent_to_two(office)
    desk = office.desks.pop("two-1")
    one.post(impatient("a"), office, settle=True)
    one.post(Cancelled("a"), office, settle=True)
    office.desks["two-1"] = desk
    office.settle()
    one.post(Ticked(), office, settle=True)
    assert (one.started, codes(one)) == ([], [])
    for name in ("b", "c"):
        one.post(impatient(name), office, settle=True)
    assert one.started == ["b", "c"]
    assert two.started == ["x", "y"]


def test_one_whose_replica_announces_anew_is_counted_once() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    desk = office.desks.pop("two-1")
    one.post(impatient("a"), office, settle=True)
    office.take_over(one)
    office.desks["two-1"] = desk
    office.settle()
    assert one.started == ["a"]
    seen = office.observed()
    assert (seen.accepted, seen.cancelled, sum(seen.rejected.values())) == (3, 0, 0)


def test_one_whose_refusal_is_never_counted_takes_none_out_of_the_count() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    del office.desks["two-1"]
    for number in range(OPTIONS.max_size + 2):
        one.post(Arrived(f"r{number}", "other"), office, settle=True)
    assert office.observed().rejected == {"queue_full": 1}
    one.post(Arrived("a", "m", patient=True), office, settle=True)
    assert codes(one) == ["queue_full"]  # that of before
    assert office.observed().rejected == {"queue_full": 1}


def test_one_that_someone_ends_meanwhile_is_told_so_and_does_not_start() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    desk = office.desks.pop("two-1")
    one.post(impatient("a"), office, settle=True)
    one.post(Revoked("a", "cancelled"), office, settle=True)
    assert codes(one) == ["cancelled"]
    office.desks["two-1"] = desk
    office.settle()
    assert one.started == []
    seen = office.observed()
    assert (seen.accepted, seen.cancelled, sum(seen.rejected.values())) == (2, 0, 0)


def test_those_held_back_for_other_slots_are_not_in_the_way() -> None:
    office = Office()
    one, two = lent_to_two(office)
    two.post(Arrived("z", "other"), office, settle=True)
    two.post(Finished("z"), office, settle=True)
    desk = office.desks.pop("two-1")
    one.post(impatient("a"), office, settle=True)
    one.post(impatient("b"), office, settle=True)
    one.post(impatient("c", "other"), office, settle=True)
    assert codes(one) == []
    office.desks["two-1"] = desk
    office.settle()
    assert sorted(one.started) == ["a", "b", "c"]


def test_one_that_asked_again_in_vain_keeps_its_place() -> None:
    office = Office()
    single = NodeChanged("gpu1", slots=1, models=("m",))
    one, two = office.join("one-1", single, SECOND), office.join("two-1", single, SECOND)
    for name in ("x", "y"):
        two.post(Arrived(name, "m"), office, settle=True)
    for name in ("x", "y"):
        two.post(Finished(name), office, settle=True)
    one.post(NodeRested("gpu1", 60.0), office, settle=True)  # its slot comes first, for nothing
    desk = office.desks.pop("two-1")
    one.post(impatient("a"), office, settle=True)
    one.post(impatient("b"), office, settle=True)
    office.desks["two-1"] = desk
    office.settle()
    assert (one.started, codes(one)) == (["a"], ["deadline_unreachable"])


def test_one_who_asks_meanwhile_hears_that_it_waits() -> None:
    office = Office()
    one, _ = lent_to_two(office)
    del office.desks["two-1"]  # it is frozen: nothing reaches it
    for name in ("a", "b"):
        one.post(impatient(name), office, settle=True)
    office.now_s += DEFER_S / 2
    for name in ("a", "b"):
        one.post(Inspected(name), office, settle=True)
    seen = [action for action in one.actions if isinstance(action, Describe)]
    assert [(each.id, each.state, each.reason, each.position) for each in seen] == [
        ("a", "waiting", "busy", 1),
        ("b", "waiting", "busy", 2),
    ]
    assert [each.waited_s for each in seen] == pytest.approx([DEFER_S / 2] * 2)
    office.now_s += DEFER_S
    office.leader.tick(office.now_s)
    office.settle()
    assert codes(one) == ["deadline_unreachable"] * 2


def with_a_loan_in_use(office: Office) -> tuple[Desk, Desk]:
    """Return two replicas; what a third has on loan is in use, and nobody knows.

    The third slot is in use by the leader's own replica.
    """
    one, two, three = (office.join(name, THREE, OTHER) for name in ("one-1", "two-1", "three-1"))
    office.desks[office.name].post(THREE, office, settle=True)
    for name in ("x", "y"):
        three.post(Arrived(name, "m"), office, settle=True)
    for name in ("x", "y"):
        three.post(Finished(name), office, settle=True)
    for name in ("v", "w"):
        three.post(Arrived(name, "m"), office)
    del office.desks["three-1"]
    assert three.started == ["x", "y", "v", "w"]
    return one, two


@pytest.mark.parametrize("who", ["another replica", "the leader"])
@pytest.mark.parametrize("ending", [Finished("t"), Cancelled("t")])
def test_a_slot_that_comes_free_elsewhere_meanwhile_is_for_the_one_held_back(
    who: str, ending: Finished | Cancelled
) -> None:
    office = Office()
    one, two = with_a_loan_in_use(office)
    runs = two if who == "another replica" else office.desks[office.name]
    runs.post(Arrived("t", "m"), office, settle=True)
    one.post(impatient("a"), office, settle=True)
    assert (one.started, codes(one)) == ([], [])
    runs.post(ending, office, settle=True)
    runs.post(impatient("b"), office, settle=True)
    assert (one.started, runs.started) == (["a"], ["t"])


def test_who_waits_after_all_has_loans_called_back_like_anyone() -> None:
    office = Office()
    office.leader.change_options(replace(OPTIONS, per_user_max=1), office.now_s)
    one, two = with_a_loan_in_use(office)
    two.post(Arrived("t", "m"), office, settle=True)
    one.post(Arrived("r", "other", user="u"), office, settle=True)
    one.post(Arrived("s", "other", user="u"), office, settle=True)
    one.post(NodeRested("gpu1", 60.0), office, settle=True)
    one.post(Arrived("a", "m", user="u"), office, settle=True)  # its user has one in line
    two.post(Finished("t"), office, settle=True)  # this slot stays there: nobody waits for it
    one.post(Finished("r"), office, settle=True)  # now its user has a place again
    office.now_s += DEFER_S
    office.leader.tick(office.now_s)
    office.settle()
    assert one.waiting == ["s", "a"]
    lent = {each.about.member: each.lent for each in office.leader.statuses(office.now_s)}
    assert lent["two-1"] == 0
