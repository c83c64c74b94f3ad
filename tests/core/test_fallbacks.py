"""Fallback models: settled before any waiting."""

from __future__ import annotations

from forebay.core import Reject, Wait

from .rig import Rig


def test_a_fallback_runs_where_the_model_is_unknown() -> None:
    rig = Rig()
    rig.node("n", 1, "spare")
    route = rig.start("a", "gone", fallbacks=("lost", "spare"))
    assert (route.node, route.model) == ("n", "spare")


def test_a_fallback_runs_where_every_node_of_the_model_is_offline() -> None:
    rig = Rig()
    rig.node("n1", 1, "m", state="offline")
    rig.node("n2", 1, "spare")
    assert rig.start("a", "m", fallbacks=("spare",)).model == "spare"


def test_a_fallback_with_a_free_slot_runs_before_anyone_waits() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    assert rig.start("a", "m", fallbacks=("spare",)).model == "m"
    assert rig.start("b", "m", fallbacks=("spare",)).model == "spare"


def test_with_everything_busy_it_waits_for_the_model_it_asked_for() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    rig.start("a", "m")
    rig.start("b", "spare")
    (wait,) = rig.give_arrival("c", "m", fallbacks=("spare",))
    assert isinstance(wait, Wait)
    rig.finish("b")
    assert rig.routed[-1].id == "b"
    rig.finish("a")
    assert (rig.routed[-1].id, rig.routed[-1].model) == ("c", "m")


def test_with_nothing_up_it_waits_for_whichever_comes_up_first() -> None:
    rig = Rig()
    rig.node("n1", 1, "m", state="offline")
    rig.node("n2", 1, "spare", state="offline")
    assert rig.wait("a", "m", fallbacks=("spare",)).reason == "offline"
    rig.wait("b", "m")
    rig.node("n2", 1, "spare")
    assert [(route.id, route.model) for route in rig.routed] == [("a", "spare")]
    assert Rig.started(rig.node("n1", 1, "m")) == ["b"]


def test_a_fallback_whose_node_will_be_back_is_waited_for() -> None:
    rig = Rig()
    rig.node("n1", 1, "m", state="offline", away_s=60.0)
    rig.node("n2", 1, "spare", state="loading")
    assert rig.wait("a", "m", fallbacks=("spare",)).reason == "loading"
    rig.node("n2", 1, "spare")
    assert rig.routed[-1].model == "spare"


def test_with_nothing_up_the_refusal_is_about_the_model_asked_for() -> None:
    rig = Rig()
    rig.node("n1", 1, "spare", state="offline", away_s=60.0)
    (refusal,) = rig.give_arrival("a", "m", fallbacks=("spare",))
    assert isinstance(refusal, Reject)
    assert refusal.code == "model_not_found"


def test_who_waits_goes_on_with_a_fallback_that_is_up_when_its_model_has_no_node() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    rig.start("x", "m")
    rig.start("y", "spare")
    rig.wait("a", "m", fallbacks=("spare",))
    rig.wait("b", "m", fallbacks=("spare",))
    rig.node("n1", 1, "m", state="offline")
    assert rig.finish("y") == ["a"]
    assert (rig.routed[-1].node, rig.routed[-1].model) == ("n2", "spare")
    assert rig.finish("a") == ["b"]


def test_who_is_given_another_model_starts_where_that_has_a_free_slot() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    rig.start("x", "m")
    rig.start("y", "spare")
    rig.wait("a", "m", fallbacks=("spare",))
    rig.finish("y")
    assert Rig.started(rig.node("n1", 1, "m", state="offline")) == ["a"]


def test_who_comes_back_from_a_node_that_went_goes_on_with_a_fallback() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    rig.start("a", "m", fallbacks=("spare",))
    rig.node("n1", 1, "m", state="offline")
    assert Rig.started(rig.come_back("a")) == ["a"]
    assert (rig.routed[-1].node, rig.routed[-1].model) == ("n2", "spare")


def test_who_waits_goes_on_with_a_fallback_when_its_node_is_removed() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "spare")
    rig.start("x", "m")
    rig.start("y", "spare")
    rig.wait("a", "m", fallbacks=("spare",))
    rig.give_removal("n1")
    assert rig.finish("y") == ["a"]
