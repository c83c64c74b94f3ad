"""Coming back where several replicas share one queue: the leader's core remembers for all."""

from __future__ import annotations

from forebay.core import Arrived, Cancelled, Finished, NodeChanged, Reject, Route, Wait

from .pair import OPTIONS, LocalFleet, LocalReplica

A = NodeChanged("gpu1", slots=1, models=("busy",))
B = NodeChanged("gpu2", slots=2, models=("idle",))
BODY = 7 << 32 | 1234


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


def number_of(replica: LocalReplica, name: str) -> int:
    told = [one for one in replica.actions if isinstance(one, Wait | Route) and one.id == name]
    return told[0].seq


def order_at(replica: LocalReplica, fleet: LocalFleet, *comes: tuple[str, int | None]) -> list[str]:
    """Let one come for each place that comes free; return them by their arrival numbers."""
    for number, (name, digest) in enumerate(comes):
        fleet.replicas["one-1"].post(Finished(f"r{number}"), fleet, settle=True)
        replica.post(Arrived(name, "busy", user="ann", digest=digest), fleet, settle=True)
    return sorted((name for name, _ in comes), key=lambda name: number_of(replica, name))


def test_who_was_refused_at_one_replica_has_its_number_at_another_and_once() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A), fleet.join("two-1", A)
    fill(one, fleet)
    one.post(Arrived("over", "busy", user="ann", digest=BODY), fleet, settle=True)
    assert [action.id for action in one.actions if isinstance(action, Reject)] == ["over"]
    order = order_at(two, fleet, ("new", None), ("back", BODY), ("again", BODY))
    assert order == ["back", "new", "again"]


def test_who_gave_up_waiting_at_one_replica_has_its_number_at_another() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A), fleet.join("two-1", A)
    fill(one, fleet)
    one.post(Cancelled("r100"), fleet, settle=True)
    one.post(Arrived("left", "busy", user="ann", digest=BODY), fleet, settle=True)
    one.post(Finished("r0"), fleet, settle=True)
    one.post(Arrived("r100", "busy"), fleet, settle=True)
    one.post(Cancelled("left"), fleet, settle=True)
    two.post(Arrived("new", "busy", user="ann"), fleet, settle=True)
    one.post(Finished("r1"), fleet, settle=True)
    two.post(Arrived("back", "busy", user="ann", digest=BODY), fleet, settle=True)
    assert number_of(two, "back") < number_of(two, "new")


def test_a_rejection_that_is_deferred_keeps_its_number() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A, B), fleet.join("two-1", A, B)
    lend_idle_slots(two, fleet)
    fill(one, fleet)
    del fleet.replicas["two-1"]  # what is idle on loan there is not given back yet
    one.post(Arrived("deferred", "idle", digest=BODY), fleet, settle=True)
    one.post(Finished("r0"), fleet, settle=True)
    one.post(Arrived("later", "busy"), fleet, settle=True)
    assert "deferred" not in one.started
    fleet.replicas["two-1"] = two
    fleet.settle()
    assert number_of(one, "deferred") < number_of(one, "later")
