"""Return tickets where several replicas share one queue: the leader's core knows them all."""

from __future__ import annotations

from forebay.core import Arrived, Finished, NodeChanged, Reject, Route, Wait

from .pair import OPTIONS, LocalFleet, LocalReplica

A = NodeChanged("gpu1", slots=1, models=("busy",))
B = NodeChanged("gpu2", slots=2, models=("idle",))


def fill(replica: LocalReplica, fleet: LocalFleet) -> None:
    """Have one run and the rest wait for gpu1, until the line is full."""
    for number in range(OPTIONS.max_size + 1):
        replica.post(Arrived(f"r{number}", "busy", user=f"u{number}"), fleet, settle=True)
    assert len(replica.waiting) == OPTIONS.max_size


def lend_idle_slots(replica: LocalReplica, fleet: LocalFleet) -> None:
    """Have both slots of gpu2 stay with a replica."""
    for name in ("x", "y"):
        replica.post(Arrived(name, "idle"), fleet, settle=True)
    for name in ("x", "y"):
        replica.post(Finished(name), fleet, settle=True)
    assert sum(one.lent for one in fleet.leader.statuses(fleet.now_s)) == 2


def ticket_of(replica: LocalReplica, name: str) -> str:
    refusals = [one for one in replica.actions if isinstance(one, Reject) and one.id == name]
    assert refusals[0].return_ticket
    return refusals[0].return_ticket


def number_of(replica: LocalReplica, name: str) -> int:
    told = [one for one in replica.actions if isinstance(one, Wait | Route) and one.id == name]
    return told[0].seq


def test_a_ticket_of_one_replica_counts_at_another_and_once() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A), fleet.join("two-1", A)
    fill(one, fleet)
    one.post(Arrived("over", "busy", user="ann"), fleet, settle=True)
    ticket = ticket_of(one, "over")
    for done, comes, shown in (("r0", "new", ""), ("r1", "back", ticket), ("r2", "again", ticket)):
        one.post(Finished(done), fleet, settle=True)
        two.post(Arrived(comes, "busy", user="ann", return_ticket=shown), fleet, settle=True)
    numbers = {name: number_of(two, name) for name in ("back", "new", "again")}
    assert sorted(numbers, key=numbers.__getitem__) == ["back", "new", "again"]


def test_a_rejection_that_is_deferred_keeps_its_number() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A, B), fleet.join("two-1", A, B)
    lend_idle_slots(two, fleet)
    fill(one, fleet)
    del fleet.replicas["two-1"]  # what is idle on loan there is not given back yet
    one.post(Arrived("deferred", "idle"), fleet, settle=True)
    one.post(Finished("r0"), fleet, settle=True)
    one.post(Arrived("later", "busy"), fleet, settle=True)
    assert "deferred" not in one.started
    fleet.replicas["two-1"] = two
    fleet.settle()
    assert number_of(one, "deferred") < number_of(one, "later")


def test_who_shows_a_ticket_is_decided_about_by_the_leader_though_a_slot_is_idle_on_loan() -> None:
    fleet = LocalFleet()
    fleet.join("one-1", B)
    two = fleet.join("two-1", B)
    lend_idle_slots(two, fleet)
    two.post(Arrived("plain", "idle"), fleet)
    two.post(Arrived("back", "idle", return_ticket="0" * 32), fleet)
    assert two.started[-1] == "plain"
    fleet.settle()
    assert two.started[-1] == "back"
