"""A line that is full for one model must not keep another's idle slots on loan."""

from __future__ import annotations

from forebay.core import Arrived, Finished, NodeChanged, Reject

from .pair import OPTIONS, LocalFleet, LocalReplica

A = NodeChanged("gpu1", slots=1, models=("busy",))
B = NodeChanged("gpu2", slots=2, models=("idle",))


def refused(replica: LocalReplica) -> list[str]:
    return [action.id for action in replica.actions if isinstance(action, Reject)]


def test_idle_slots_come_back_when_someone_is_refused_and_are_lent_again_later() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", A, B), fleet.join("two-1", A, B)
    for name in ("x", "y"):  # both slots stay with the replica that used them last
        two.post(Arrived(name, "idle"), fleet, settle=True)
        two.post(Finished(name), fleet, settle=True)
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    for number in range(OPTIONS.max_size + 1):
        one.post(Arrived(f"r{number}", "busy"), fleet, settle=True)
    assert len(one.waiting) == OPTIONS.max_size
    one.post(Arrived("over", "busy"), fleet, settle=True)
    assert refused(one) == ["over"]
    for name in ("b1", "b2"):
        one.post(Arrived(name, "idle"), fleet, settle=True)
    assert one.started[-2:] == ["b1", "b2"]
    assert refused(one) == ["over"]
    for name in ("b1", "b2", "r0"):  # a place becomes free: what is idle may be lent
        one.post(Finished(name), fleet, settle=True)
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    assert sum(standing.lent for standing in fleet.leader.statuses(fleet.now_s)) > 0
