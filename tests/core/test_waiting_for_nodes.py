"""Nothing fails that could have waited: nodes that start, load, or are gone for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.core import (
    Expire,
    NodeChanged,
    NodeRemoved,
    Options,
    OptionsChanged,
    Reject,
    Resumed,
    Wait,
)
from forebay.core.events import Arrived

from .rig import Rig

if TYPE_CHECKING:
    from typing import Any


def new_node(rig: Rig, name: str = "new", **more: Any) -> None:
    rig.node(name, 1, "none", is_new=True, state="offline", **more)


def silent_node(rig: Rig, name: str = "new", **more: Any) -> list[Any]:
    return rig.give(NodeChanged(name, 1, (), is_new=True, state="offline", **more))


# -- a node's restart


def test_requests_wait_for_a_node_that_has_just_gone_and_run_when_it_is_back() -> None:
    rig = Rig()
    rig.node(slots=2)
    rig.node(slots=2, state="offline", away_s=1.0)
    assert [rig.wait(name).reason for name in "ab"] == ["offline", "offline"]
    rig.now_s = 4.0
    assert Rig.started(rig.node(slots=2)) == ["a", "b"]


def test_what_came_back_from_a_dead_node_keeps_its_place_before_newcomers() -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    rig.node(state="offline")
    rig.wait("b")
    rig.come_back("a")
    assert rig.describe("a").reason == "offline"
    assert Rig.started(rig.node()) == ["a"]
    assert rig.finish("a") == ["b"]


@pytest.mark.parametrize("state", ["offline", "draining"])
def test_a_node_that_is_gone_for_longer_is_not_waited_for_but_those_in_line_stay(
    state: str,
) -> None:
    rig = Rig(offline_wait_s=30.0, wait_s_max=60.0)
    rig.node(state=state, away_s=10.0)
    rig.wait("a")
    rig.now_s = 19.9
    rig.wait("b")
    rig.now_s = 20.0
    assert rig.refuse("c").code == "no_node"
    assert rig.describe("b").reason == "offline"
    told = Rig.only(Expire, rig.tick(at_s=60.0))
    assert (told.id, told.code, told.waited_s) == ("a", "no_node", 60.0)


def test_it_is_the_node_gone_last_that_counts() -> None:
    rig = Rig()
    rig.node("n1", state="offline", away_s=100.0)
    rig.node("n2", state="offline", away_s=1.0)
    assert rig.wait("a").reason == "offline"
    rig.give(NodeRemoved("n2"))
    assert rig.refuse("b").code == "no_node"


@pytest.mark.parametrize(
    ("options", "arrival"),
    [
        ({"enabled": False}, {}),
        ({"max_size": 0}, {}),
        ({"queue_streams": False}, {"stream": True}),
        ({}, {"max_wait_s": 0.0}),
        ({"wait_s_max": 0.0}, {}),
    ],
)
def test_who_may_not_wait_is_told_at_once(options: Any, arrival: Any) -> None:
    rig = Rig(**options)
    rig.node(state="offline")
    assert rig.refuse("a", **arrival).code == "no_node"
    rig.node(state="loading")
    assert rig.refuse("b", **arrival).code == "model_loading"
    silent_node(rig)
    assert rig.refuse("c", "unknown", **arrival).code == "model_loading"
    assert rig.look().lanes[-1].model == "m"  # nothing is kept of a name that was refused


def test_a_new_limit_holds_for_newcomers() -> None:
    rig = Rig()
    rig.node(state="offline", away_s=10.0)
    rig.wait("a")
    rig.give(OptionsChanged(Options(offline_wait_s=5.0)))
    assert rig.refuse("b").code == "no_node"
    assert rig.describe("a").state == "waiting"


def test_those_who_wait_for_absent_nodes_take_half_of_the_places_while_others_are_up() -> None:
    rig = Rig(max_size=4)
    rig.node("n1", state="offline")
    for name in "abcd":
        rig.wait(name)
    assert rig.refuse("e").code == "queue_full"
    for name in "abcd":
        rig.cancel(name)
    rig.node("n2", 1, "other")
    rig.wait("a")
    rig.wait("b")
    assert rig.refuse("c").code == "queue_full"
    rig.start("x", "other")
    rig.wait("y", "other")
    rig.wait("z", "other")
    assert rig.refuse("w", "other").code == "queue_full"


def test_nobody_is_displaced_for_one_who_waits_for_an_absent_node() -> None:
    rig = Rig(max_size=2, when_full="displace")
    rig.node("n1", state="offline")
    rig.node("n2", 1, "other")
    rig.start("x", "other")
    rig.wait("a")
    rig.wait("y", "other", priority="low")
    assert rig.refuse("b", priority="high").code == "queue_full"


# -- loading


def test_a_model_that_loads_is_waited_for_as_long_as_one_may() -> None:
    rig = Rig(wait_s_max=60.0, offline_wait_s=5.0)
    rig.node(state="loading")
    assert rig.wait("a").reason == "loading"
    rig.now_s = 59.0
    rig.wait("b")
    told = Rig.only(Expire, rig.tick(at_s=60.0))
    assert (told.id, told.code) == ("a", "model_loading")
    assert Rig.started(rig.node()) == ["b"]


def test_the_wait_for_a_load_is_estimated_from_earlier_ones() -> None:
    rig = Rig.busy()
    rig.finish("z", after_s=4.0)
    rig.node(state="loading", ready_in_s=8.0)
    first, second = rig.wait("a"), rig.wait("b")
    assert (first.estimate_s, first.p50_s) == (8.0, 8.0)
    assert (second.estimate_s, second.position) == (12.0, 2)
    rig.now_s += 3.0
    assert rig.describe("a").p50_s == 5.0
    rig.now_s += 30.0
    assert rig.describe("a").p50_s == 0.0


def test_nobody_is_refused_for_the_estimate_of_a_load() -> None:
    rig = Rig()
    rig.node(state="loading", ready_in_s=100.0)
    assert rig.wait("a", max_wait_s=5.0).p50_s == 100.0
    assert Rig.only(Expire, rig.tick(at_s=5.0)).code == "model_loading"


def test_a_load_teaches_nothing_about_service_times() -> None:
    rig = Rig.busy()
    rig.finish("z", after_s=4.0)
    rig.start("y")
    before = rig.wait("x").p50_s
    rig.cancel("x")
    rig.cancel("y")
    for round_ in range(30):
        rig.node(state="loading", ready_in_s=1.0)
        rig.wait(f"a{round_}")
        rig.now_s += 50.0
        rig.node()
        rig.cancel(f"a{round_}")
    rig.start("w")
    assert rig.wait("v").p50_s == before


# -- the start


def test_a_model_that_nobody_has_is_waited_for_while_a_node_has_said_nothing() -> None:
    rig = Rig()
    rig.node("old")
    silent_node(rig)
    assert rig.wait("a", "big").reason == "starting"
    assert rig.start("b").node == "old"
    assert Rig.started(rig.node("new", 1, "big")) == ["a"]


def test_it_is_not_found_as_soon_as_all_have_said_what_they_have() -> None:
    rig = Rig()
    rig.node("old")
    silent_node(rig)
    rig.wait("a", "big")
    rig.wait("b", family="ollama")
    told = [action for action in rig.node("new", 1, "other") if isinstance(action, Reject)]
    assert [(one.id, one.code) for one in told] == [
        ("a", "model_not_found"),
        ("b", "route_not_supported"),
    ]
    assert rig.refuse("c", "big").code == "model_not_found"
    assert rig.look().waiting == 0


def test_a_node_that_is_removed_unheard_is_waited_for_no_more() -> None:
    rig = Rig()
    silent_node(rig)
    rig.wait("a")
    told = Rig.only(Reject, rig.give(NodeRemoved("new")))
    assert (told.id, told.code) == ("a", "model_not_found")


def test_a_node_that_never_answers_is_named_once_its_time_is_up() -> None:
    rig = Rig(offline_wait_s=30.0)
    rig.node("old")
    silent_node(rig, "gpu7")
    rig.wait("a", "big")
    rig.now_s = 30.0
    refusal = rig.refuse("b", "big")
    assert refusal.code == "no_node"
    assert "gpu7" in refusal.reasons[0]
    assert Rig.only(Expire, rig.tick(at_s=60.0)).code == "no_node"


def test_a_node_whose_models_the_operator_lists_has_said_what_it_has() -> None:
    rig = Rig(offline_wait_s=30.0)
    new_node(rig)
    assert rig.wait("a", "none").reason == "starting"
    assert rig.refuse("b", "other").code == "model_not_found"
    rig.now_s = 30.0
    assert "new" in rig.refuse("c", "none").reasons[0]


def test_a_node_that_loads_before_it_says_what_it_has_may_have_anything() -> None:
    rig = Rig(offline_wait_s=1.0)
    rig.give(NodeChanged("n", 1, (), state="loading"))
    rig.now_s = 20.0
    assert rig.wait("a").reason == "loading"
    assert Rig.started(rig.node("n")) == ["a"]


def test_names_that_nobody_has_leave_nothing_behind() -> None:
    rig = Rig(max_size=1)
    silent_node(rig)
    rig.wait("a", "junk1")
    assert rig.refuse("b", "junk2").code == "queue_full"
    rig.cancel("a")
    assert rig.look().lanes == ()


def test_a_placeholder_for_nodes_on_their_way_is_not_shown() -> None:
    rig = Rig()
    silent_node(rig, "(guards)")
    assert rig.wait("a").reason == "starting"
    assert rig.look().nodes == ()


def test_who_was_taken_over_while_it_waited_for_a_start_goes_on_waiting() -> None:
    rig = Rig()
    silent_node(rig)
    rig.give(Resumed(Arrived("a", "m"), seq=3, waited_s=5.0))
    assert rig.describe("a").reason == "starting"
    assert Rig.started(rig.node("new")) == ["a"]


# -- live calls before jobs, also where they may not wait


OFF = [{"enabled": False}, {"max_size": 0}, {"queue_streams": False}]


@pytest.mark.parametrize("options", OFF)
def test_a_live_call_that_may_not_wait_waits_for_a_job_to_end(options: Any) -> None:
    rig = Rig(wait_s_max=10.0, **options)
    rig.node()
    rig.start("j", job=True)
    rig.wait("k", job=True)
    assert rig.wait("a", stream=True).reason == "busy"
    assert rig.finish("j") == ["a"]
    assert rig.finish("a") == ["k"]


@pytest.mark.parametrize("options", OFF)
def test_one_call_waits_for_each_job_and_only_to_its_limit(options: Any) -> None:
    rig = Rig(wait_s_max=10.0, **options)
    rig.node(slots=3)
    rig.start("x", stream=True)
    rig.start("j", job=True)
    rig.start("k", job=True)
    rig.wait("a", stream=True)
    rig.wait("b", stream=True)
    refusal = rig.refuse("c", stream=True)
    assert refusal.code in ("queue_disabled", "stream_not_queued")
    told = [action for action in rig.tick(at_s=10.0) if isinstance(action, Expire)]
    assert [(one.id, one.code) for one in told] == [("a", "queue_timeout"), ("b", "queue_timeout")]


def test_a_call_that_waits_for_a_job_takes_no_place_in_line() -> None:
    rig = Rig(queue_streams=False, max_size=1)
    rig.node()
    rig.start("j", job=True)
    rig.wait("a", stream=True)
    rig.wait("b")
    assert rig.refuse("c").code == "queue_full"
    assert rig.look().waiting == 2
    rig.finish("j")
    assert rig.look().waiting == 1


def test_jobs_in_slots_that_it_cannot_use_are_not_waited_for() -> None:
    rig = Rig(enabled=False)
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "other")
    rig.start("x")
    rig.start("j", "other", job=True)
    assert rig.refuse("a").code == "queue_disabled"


def test_two_lanes_of_one_node_do_not_wait_for_the_same_job() -> None:
    rig = Rig(enabled=False)
    rig.node("n", 1, "m", "other")
    rig.start("j", job=True)
    assert isinstance(rig.arrive("a"), Wait)
    assert rig.refuse("b", "other").code == "queue_disabled"
