"""Slots that the core finds: one leader does it for all, from the requests of all."""

from __future__ import annotations

from forebay.core import NodeChanged, NodeRested, SlotsChanged

from .pair import LocalFleet, LocalReplica

NODE = NodeChanged("gpu", slots=4, models=("llama",), slots_kind="found")


def found(replica: LocalReplica) -> list[int]:
    return [action.slots for action in replica.actions if isinstance(action, SlotsChanged)]


def test_all_are_told_what_the_leader_has_found_whoever_saw_why() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", NODE), fleet.join("two-1", NODE)
    two.post(NodeRested("gpu"), fleet, settle=True)
    assert found(one) == found(two) == [3]
    one.post(NodeRested("gpu"), fleet, settle=True)
    assert found(one) == found(two) == [3, 2]


def test_a_report_of_a_node_does_not_change_what_was_found() -> None:
    fleet = LocalFleet()
    one, two = fleet.join("one-1", NODE), fleet.join("two-1", NODE)
    two.post(NodeRested("gpu"), fleet, settle=True)
    for replica in (one, two):
        replica.post(NODE, fleet, settle=True)
    assert fleet.leader.decisions.views.merged["gpu"].slots == 3
    assert found(one) == found(two) == [3]
