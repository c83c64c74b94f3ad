"""A model that a node lists but cannot load (FAULTS 35): its lane rests, the others go on."""

from __future__ import annotations

from forebay.core import Reject, Route, Wait

from .rig import Rig


def test_fault_35_a_model_that_fails_to_load_rests_while_the_others_go_on() -> None:
    rig = Rig()
    rig.node("n", 1, "big", "small")
    rig.node("n", 1, "big", "small", failing=("big",))
    (refusal,) = rig.give_arrival("a", "big")
    assert isinstance(refusal, Reject)
    assert refusal.code == "no_node"
    (served,) = rig.give_arrival("b", "small")
    assert isinstance(served, Route)


def test_what_waits_for_a_failing_model_runs_when_it_can_be_loaded_again() -> None:
    rig = Rig()
    rig.node("n", 1, "big", "small")
    rig.start("a", "small")
    (wait,) = rig.give_arrival("b", "big")
    assert isinstance(wait, Wait)
    rig.node("n", 1, "big", "small", failing=("big",))
    rig.finish("a")
    assert [route.id for route in rig.routed] == ["a"]
    rig.node("n", 1, "big", "small")
    assert [route.id for route in rig.routed] == ["a", "b"]


def test_a_failing_model_is_served_by_another_node_that_can() -> None:
    rig = Rig()
    rig.node("n1", 1, "big", failing=("big",))
    rig.node("n2", 1, "big")
    assert rig.start("a", "big").node == "n2"


def test_a_failing_model_is_forgotten_with_its_node() -> None:
    rig = Rig()
    rig.node("n", 1, "big", "small", failing=("big",))
    rig.node("n", 1, "small")
    (refusal,) = rig.give_arrival("a", "big")
    assert isinstance(refusal, Reject)
    assert refusal.code == "model_not_found"
