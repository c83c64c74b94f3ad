"""A request runs where it ends first, and waits for a busy node where that ends it sooner."""

from __future__ import annotations

import random
from typing import Any

import pytest

from forebay.core import (
    Finished,
    KeyLimits,
    NodeChanged,
    NodeRested,
    Returned,
)
from forebay.core.speeds import Speed, Work

from .rig import Rig


def served(rig: Rig, name: str, service_s: float, **more: Any) -> str:
    """Run one request alone, and return its node."""
    node = rig.start(name, **more).node
    rig.now_s += service_s
    rig.give(Finished(name, prompt_tokens=10, output_tokens=10))
    return node


def unequal(**options: Any) -> Rig:
    """Return a rig whose node `fast` takes 1 s for what takes `slow` 5 s; both are measured."""
    rig = Rig(**options)
    rig.node("fast")
    rig.node("slow")
    for number in range(10):
        first, second = rig.start(f"w{number}").node, rig.start(f"v{number}", max_wait_s=0.0).node
        assert {first, second} == {"fast", "slow"}
        fast = f"w{number}" if first == "fast" else f"v{number}"
        slow = f"v{number}" if first == "fast" else f"w{number}"
        rig.now_s += 1.0
        rig.give(Finished(fast, prompt_tokens=10, output_tokens=10))
        rig.now_s += 4.0
        rig.give(Finished(slow, prompt_tokens=10, output_tokens=10))
        rig.now_s += 600.0 if number < 9 else 400.0  # mostly idle, and not yet unmeasured
    return rig


def test_a_request_goes_to_the_faster_of_two_free_nodes() -> None:
    rig = unequal()
    assert [served(rig, f"a{number}", 1.0) for number in range(5)] == ["fast"] * 5


def test_a_request_waits_for_the_faster_node_and_says_so() -> None:
    rig = unequal()
    assert rig.start("a").node == "fast"
    assert rig.wait("b").reason == "better_node"
    told = rig.describe("b")
    assert (told.waits_for, told.better_by, told.reason) == ("fast", "speed", "better_node")
    assert told.times_as_fast == pytest.approx(5.0, rel=0.1)
    assert 0.0 < told.gain_s < 4.0
    assert told.hold_s_left == pytest.approx(5.0, rel=0.2), "what the slow node would take"
    rig.now_s += 1.0
    rig.give(Finished("a", prompt_tokens=10, output_tokens=10))
    assert rig.routed[-1].node == "fast"


def test_those_behind_a_held_request_may_use_the_free_node() -> None:
    rig = unequal()
    rig.start("a")
    rig.wait("b")
    for name in ("c", "d", "e", "f", "g", "h"):
        rig.arrive(name)
    assert rig.routed[-1].node == "slow"


def test_a_hold_ends_when_its_node_rests_or_goes() -> None:
    for event in (
        NodeRested("fast", 5.0),
        NodeChanged("fast", 1, ("m",), state="offline"),
        NodeChanged("fast", 1, ("other",)),
    ):
        rig = unequal()
        rig.start("a")
        rig.wait("b")
        rig.give(event)
        assert rig.routed[-1].id == "b", event
        assert rig.routed[-1].node == "slow"


def test_a_held_request_may_start_on_a_node_that_comes_back_meanwhile() -> None:
    rig = unequal()
    rig.node("third", 1)
    names = {rig.start("d").node: "d", rig.start("c", max_wait_s=0.0).node: "c"}
    for node, after_s in (("fast", 1.0), ("third", 4.0)):
        rig.now_s += after_s
        rig.give(Finished(names[node], prompt_tokens=10, output_tokens=10))
    rig.now_s += 60.0
    rig.node("third", 1, failing=("m",))
    rig.start("a")
    rig.wait("b")
    rig.node("third", 2)
    assert (rig.routed[-1].id, rig.routed[-1].node) == ("b", "third")
    assert not any(node.held for node in rig.core._book.cluster.nodes.values())
    assert not rig.core._book.entries["b"].excluded


def test_a_request_that_was_held_for_its_time_is_not_held_again() -> None:
    rig = unequal()
    rig.start("a")
    assert rig.wait("b").reason == "better_node"
    until_s = rig.now_s + rig.describe("b").hold_s_left
    rig.tick(until_s)
    assert (rig.routed[-1].id, rig.routed[-1].node) == ("b", "slow")
    rig.give(Returned("b", exclude=False))
    assert rig.routed[-1].id == "b", "and none that came back is held"


def test_a_held_request_that_moves_up_while_its_key_is_over_its_rate_waits_for_that() -> None:
    limits = {"k": KeyLimits(requests_per_minute=1)}
    rig = unequal(aging_s=2.0, wait_s_max=600.0, key_limits=limits)
    rig.start("a")
    assert rig.wait("b", key="k", priority="low").reason == "better_node"
    assert rig.start("c", key="k", max_wait_s=0.0).node == "slow"
    rig.tick(rig.now_s + 2.0)
    assert rig.describe("b").reason == "rate"
    rig.finish("a")
    rig.finish("c", after_s=10.0)
    assert Rig.started(rig.tick(rig.now_s + 60.0)) == ["b"]
    assert not any(node.held for node in rig.core._book.cluster.nodes.values())


def test_a_hold_ends_when_its_node_has_a_slot_but_no_memory() -> None:
    rig = unequal()
    rig.start("a")
    assert rig.wait("b", prompt_tokens=5000).reason == "better_node"
    rig.node("fast", 2, kv_free_tokens=100, kv_reading=1)
    assert (rig.routed[-1].id, rig.routed[-1].node) == ("b", "slow")


def test_jobs_prompts_and_who_may_not_wait_are_never_held() -> None:
    for more in ({"job": True}, {"patient": True}, {"max_wait_s": 0.0}):
        rig = unequal()
        rig.start("a")
        assert rig.start("b", **more).node == "slow"
    rig = unequal(enabled=False)
    rig.start("a")
    assert rig.start("b").node == "slow"


def test_nobody_is_held_back_from_a_node_that_was_not_measured_for_ten_minutes() -> None:
    rig = unequal()
    rig.now_s += 601.0
    rig.start("a")
    assert rig.start("b").node == "slow"


def test_a_new_node_is_tried_while_nothing_runs_there() -> None:
    rig = unequal()
    rig.node("new", 2)
    assert rig.start("a").node in ("fast", "new")
    assert rig.start("b").node in ("fast", "new")


def test_a_conversation_decides_among_nodes_that_are_alike_only() -> None:
    rig = Rig()
    rig.node("one", 4)
    rig.node("two", 4)
    first = rig.start("a", affinity="talk").node
    assert [rig.start(f"b{n}", affinity="talk").node for n in range(3)] == [first] * 3
    rig = unequal()
    rig.start("a")
    rig.start("b", affinity="talk", max_wait_s=0.0)
    rig.now_s += 1.0
    for name in ("a", "b"):
        rig.give(Finished(name, prompt_tokens=10, output_tokens=10))
    assert rig.start("c", affinity="talk").node == "fast", "it is worth its cache, no more"


def test_a_node_with_the_model_in_memory_is_waited_for_rather_than_a_load() -> None:
    rig = Rig()
    loaded = {"loaded_max": 1, "load_s": 20.0}
    rig.node("warm", 1, "m", "n", loaded=("m",), **loaded)
    rig.node("cold", 1, "m", "n", loaded=("n",), **loaded)
    for number in range(5):
        assert served(rig, f"w{number}", 1.0) == "warm"
    rig.start("a")
    assert rig.wait("b").reason == "better_node"
    told = rig.describe("b")
    assert (told.waits_for, told.better_by) == ("warm", "memory")
    assert 15.0 < told.gain_s < 21.0


def test_a_run_with_a_load_in_it_measures_no_speed() -> None:
    rig = Rig()
    for name in ("one", "two"):
        rig.node(name, 1, "m", "n", loaded=("n",), loaded_max=1, load_s=9.0)
    assert served(rig, "a", 10.0)
    lane = rig.core._book.cluster.lanes["m", "openai"]
    assert not lane.speeds
    served(rig, "b", 1.0)
    assert lane.speeds


@pytest.mark.parametrize("seed", range(5))
def test_the_speed_of_a_node_is_found_whatever_runs_beside_and_however_long_answers_are(
    seed: int,
) -> None:
    """Twice as slow as usual, and a third slower by each other that runs there."""
    rng, speed, work = random.Random(seed), Speed(), Work()
    now_s = 0.0
    for _ in range(300):
        length, beside, now_s = rng.expovariate(0.01), rng.randrange(5), now_s + 1.0
        usual_s = 0.02 * length
        work.add(usual_s, 0.0, length)
        speed.add(usual_s * 2.0 * (1.0 + beside / 3.0), usual_s, float(beside), now_s)
    assert speed.x(0.0) == pytest.approx(2.0, rel=0.05)
    assert speed.x(3.0) == pytest.approx(4.0, rel=0.05)
    assert work.rest_of_s(100.0) == pytest.approx(2.0, rel=0.05)


def test_no_slope_falls_and_no_line_is_read_far_below_the_mean() -> None:
    speed = Speed()
    for beside in (0.0, 9.0):
        speed.add(9.0 - beside + 1.0, 1.0, beside, 0.0)
    assert speed.x(0.0) == speed.x(9.0) == speed.mean()
    steep = Speed()
    for beside in (9.0, 10.0):
        steep.add(1.0 + 10.0 * (beside - 9.0), 1.0, beside, 0.0)
    assert steep.x(0.0) == pytest.approx(0.2 * steep.mean())


def test_a_node_that_became_slower_is_known_after_twenty_answers() -> None:
    speed = Speed()
    for number in range(200):
        speed.add(1.0, 1.0, 0.0, float(number))
    for number in range(200, 230):
        speed.add(5.0, 1.0, 0.0, float(number))
    assert speed.mean() > 4.0


def test_absurd_counts_leave_every_sum_finite() -> None:
    rig = Rig()
    rig.node("one")
    rig.node("two")
    for number in range(50):
        rig.start(f"a{number}", prompt_tokens=10**30)
        rig.now_s += 1.0
        rig.give(Finished(f"a{number}", prompt_tokens=10**30, output_tokens=10**30))
    lane = rig.core._book.cluster.lanes["m", "openai"]
    assert all(0.0 < speed.mean() < 1e12 for speed in lane.speeds.values())
    assert rig.start("z").node


def test_a_picture_tells_how_fast_each_node_is_and_when_that_was_measured() -> None:
    rig = unequal()
    rig.node("new")
    seen = {node.name: node for node in rig.look().nodes}
    fast, slow, new = seen["fast"], seen["slow"], seen["new"]
    assert fast.speed is not None
    assert slow.speed is not None
    assert slow.speed < 1.0 < fast.speed
    assert fast.speed == pytest.approx(5.0 * slow.speed, rel=0.1)
    assert (fast.measured_s_ago, slow.measured_s_ago) == (404.0, 400.0)
    assert (new.speed, new.measured_s_ago) == (None, None)
    rig.now_s += 10.0
    node = served(rig, "a", 1.0)
    seen = {node.name: node for node in rig.look().nodes}
    assert (seen[node].measured_s_ago, seen["slow"].measured_s_ago) == (0.0, 411.0)


def test_the_speed_of_a_node_is_1_over_its_mean_over_the_models() -> None:
    rig = Rig()
    rig.node("one", 1, "m", "k")
    rig.node("two", 1, "m", "k")
    for number in range(40):
        for model, took in (("m", {"one": 1.0, "two": 4.0}), ("k", {"one": 2.0, "two": 2.0})):
            names = [f"{model}{number}{which}" for which in "ab"]
            by_node = {rig.start(name, model, max_wait_s=0.0).node: name for name in names}
            rig.finish(by_node["one"], after_s=took["one"])
            rig.finish(by_node["two"], after_s=took["two"] - took["one"])
    one, two = rig.look().nodes
    assert one.speed == pytest.approx(2 / (1 / 2.5 + 1), rel=0.1)
    assert two.speed == pytest.approx(2 / (4 / 2.5 + 1), rel=0.1)
