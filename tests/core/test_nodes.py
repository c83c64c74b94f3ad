"""Nodes: which one an entry runs on, and what happens when nodes come, rest and go."""

from __future__ import annotations

import pytest

from forebay.core import Expire, Returned, Revoked, Route

from .rig import Rig


def choice(*nodes: tuple[str, dict[str, object]]) -> str:
    """Return the node that one arrival goes to."""
    rig = Rig()
    for name, more in nodes:
        rig.node(name, 2, "m", "other", **more)
    return rig.start("a").node


def test_a_node_with_the_model_in_memory_comes_before_an_idle_one() -> None:
    warm: dict[str, object] = {"loaded": ("m",), "gpu_load": 1.0}
    cold: dict[str, object] = {"loaded": ("other",), "gpu_load": 0.0}
    assert choice(("cold", cold), ("warm", warm)) == "warm"
    assert choice(("warm", warm), ("cold", cold)) == "warm"


@pytest.mark.parametrize(("in_flight", "expected"), [(2, "busy"), (3, "free")])
def test_slots_in_use_weigh_seven_tenths_and_the_gpu_three(in_flight: int, expected: str) -> None:
    rig = Rig()
    rig.node("busy", 10)
    for number in range(in_flight):
        rig.start(f"x{number}")
    rig.node("free", 10, gpu_load=0.5)  # 0.15 against 0.07 for each of ten slots
    assert rig.start("a").node == expected


def test_of_equal_nodes_the_least_recently_used_is_taken() -> None:
    rig = Rig()
    for name in ("n1", "n2", "n3"):
        rig.node(name)
    first = [rig.start(f"a{number}").node for number in range(3)]
    assert sorted(first) == ["n1", "n2", "n3"]
    for number in (1, 2, 0):
        rig.finish(f"a{number}")
    assert [rig.start(f"b{number}").node for number in range(3)] == first


def test_affinity_comes_before_load() -> None:
    rig = Rig()
    rig.node("n1", 2)
    rig.node("n2", 2, gpu_load=0.1)
    assert rig.start("a", affinity="talk").node == "n1"
    assert rig.start("b", affinity="talk").node == "n1"
    assert rig.start("c").node == "n2"


def test_affinity_is_never_a_reason_to_wait() -> None:
    rig = Rig()
    rig.node("n1")
    rig.node("n2", gpu_load=1.0)
    assert rig.start("a", affinity="talk").node == "n1"
    assert rig.start("b", affinity="talk").node == "n2"
    rig.finish("a")
    rig.finish("b")
    assert rig.start("c", affinity="talk").node == "n2"


def test_affinities_are_remembered_up_to_a_bound() -> None:
    rig = Rig(affinities_max=1)
    rig.node("n1", 9)
    rig.node("n2", 9, gpu_load=0.5)
    rig.start("a", affinity="first")
    rig.node("n1", 9, gpu_load=1.0)
    assert rig.start("b", affinity="second").node == "n2"
    assert rig.start("c", affinity="first").node == "n2"


# -- draining, resting, slots


def test_a_draining_node_gets_nothing_new_and_finishes_what_runs() -> None:
    rig = Rig()
    rig.node("n1")
    rig.start("x")
    rig.node("n1", state="draining", away_s=60.0)
    assert rig.refuse("a").code == "no_node"
    assert rig.finish("x") == []
    assert rig.look().nodes[0].in_flight == 0
    rig.node("n1")
    assert rig.start("a").node == "n1"


def test_a_resting_node_has_one_slot_fewer_and_takes_nothing_for_a_while() -> None:
    rig = Rig()
    rig.node(slots=3)
    rig.give_rest("n", 2.0)
    assert rig.look().nodes[0].slots == 2
    for name in ("a", "b", "c"):
        assert rig.wait(name).reason == "busy"
    assert rig.core.next_deadline_s() == 2.0
    assert rig.tick(at_s=1.75) == []
    assert Rig.started(rig.tick(at_s=2.0)) == ["a", "b"]
    assert Rig.started(rig.node(slots=3)) == ["c"]


def test_the_last_slot_is_never_taken_away() -> None:
    rig = Rig()
    rig.node()
    rig.give_rest("n", 1.0)
    rig.give_rest("n", 1.0)
    assert rig.look().nodes[0].slots == 1
    rig.give_rest("nobody", 1.0)


def test_a_longer_rest_is_not_cut_short_by_a_shorter_one() -> None:
    rig = Rig()
    rig.node()
    rig.give_rest("n", 10.0)
    rig.give_rest("n", 1.0)
    rig.wait("a")
    assert rig.tick(at_s=1.0) == []
    assert Rig.started(rig.tick(at_s=10.0)) == ["a"]


def test_a_late_tick_starts_nobody_whose_time_was_up_while_the_node_rested() -> None:
    rig = Rig()
    rig.node()
    rig.give_rest("n", 5.0)
    rig.wait("a", max_wait_s=6.0)
    rig.wait("b")
    actions = rig.tick(at_s=10.0)
    assert [(type(action), getattr(action, "id", "")) for action in actions] == [
        (Expire, "a"),
        (Route, "b"),
    ]


@pytest.mark.parametrize(
    ("rest_s", "later_s", "rests_s"),
    [(1.0, 0.5, 0.1), (0.05, 0.5, 0.05), (2.0, 0.5, 2.0), (1.0, 1.5, 1.0)],
)
def test_a_node_rests_shortly_until_it_has_noticed_what_was_broken_off(
    rest_s: float, later_s: float, rests_s: float
) -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    rig.wait("b")
    assert Rig.started(rig.cancel("a")) == ["b"]
    rig.now_s = later_s
    rig.give_rest("n", rest_s)
    rig.give(Returned("b", exclude=False))
    assert Rig.started(rig.tick(at_s=later_s + rests_s - 0.01)) == []
    assert Rig.started(rig.tick(at_s=later_s + rests_s)) == ["b"]


def test_what_was_broken_off_excuses_one_refusal() -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    rig.wait("b")
    rig.cancel("a")
    tries_s = []
    while rig.now_s < 5.0:
        tries_s.append(rig.now_s)
        rig.give_rest("n", 1.0)
        rig.give(Returned("b", exclude=False))
        deadline_s = rig.core.next_deadline_s()
        assert deadline_s is not None
        assert Rig.started(rig.tick(at_s=deadline_s)) == ["b"]
    assert tries_s == pytest.approx([0.0, 0.1, 1.1, 2.1, 3.1, 4.1])


def test_a_node_that_learns_a_model_serves_those_who_wait_for_it() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "other")
    rig.start("x")
    rig.wait("a")
    assert Rig.started(rig.node("n2", 1, "m", "other")) == ["a"]
    assert rig.routed[-1].node == "n2"


# -- removal


def test_a_removed_node_takes_its_models_with_it_but_kills_nothing() -> None:
    rig = Rig()
    rig.node()
    rig.start("x")
    assert rig.give_removal("n") == []
    assert rig.refuse("a").code == "model_not_found"
    assert rig.look().running == 1
    assert rig.finish("x") == []
    assert (rig.look().running, rig.look().nodes) == (0, ())


def test_a_node_that_comes_back_still_holds_its_old_leases() -> None:
    rig = Rig()
    rig.node(slots=2)
    rig.start("x")
    rig.give_removal("n")
    rig.node(slots=2)
    assert rig.look().nodes[0].in_flight == 1
    rig.start("a")
    rig.wait("b")
    assert rig.finish("x") == ["b"]


def test_a_node_that_comes_back_is_not_closed_by_the_rest_of_the_one_before() -> None:
    rig = Rig()
    rig.node()
    rig.give_rest("n", 5.0)
    rig.give_removal("n")
    rig.node()
    rig.tick(5.0)
    rig.start("a")


def test_those_who_wait_for_a_removed_node_wait_on_and_run_when_it_returns() -> None:
    rig = Rig(wait_s_max=10.0)
    rig.node()
    rig.start("x")
    rig.wait("a")
    rig.wait("b")
    rig.give_removal("n")
    rig.finish("x")
    assert rig.describe("a").reason == "offline"
    rig.now_s = 5.0
    assert Rig.started(rig.node()) == ["a"]
    rig.give_removal("n")
    told = Rig.only(Expire, rig.tick(at_s=10.0))
    assert (told.id, told.code) == ("b", "no_node")


# -- retries


def test_a_retry_goes_to_the_best_other_node() -> None:
    rig = Rig()
    rig.node("n3")
    rig.start("a")
    rig.node("n1", gpu_load=0.9)
    rig.node("n2", gpu_load=0.1)
    rig.come_back("a")
    assert (rig.routed[-1].node, rig.routed[-1].attempt) == ("n2", 2)


def test_a_retry_stays_off_every_node_that_failed_it() -> None:
    rig = Rig()
    rig.node("n1")
    rig.node("n2")
    first = rig.start("a").node
    rig.come_back("a")
    second = rig.routed[-1].node
    assert {first, second} == {"n1", "n2"}
    assert rig.come_back("a") == []
    rig.start("b")
    rig.start("c")
    assert rig.finish("b") == []
    assert rig.describe("a").position == 1


def test_the_only_node_is_given_back_to_a_retry_by_its_next_good_probe() -> None:
    rig = Rig()
    rig.node()
    rig.start("a")
    assert rig.come_back("a") == []
    assert rig.node(state="offline") == []
    assert Rig.started(rig.node()) == ["a"]


def test_a_good_probe_gives_nothing_back_while_another_node_could_serve() -> None:
    rig = Rig()
    rig.node("n1")
    rig.start("a")
    rig.node("n2", 1, "m", "other")
    rig.start("x", "other")
    assert rig.come_back("a") == []
    assert rig.node("n1") == []
    assert rig.finish("x") == ["a"]
    assert rig.routed[-1].node == "n2"


def test_an_excluded_retry_does_not_block_those_behind_it() -> None:
    rig = Rig()
    rig.node()
    rig.start("a1")
    rig.wait("a2")
    assert Rig.started(rig.come_back("a1")) == ["a2"]


def test_a_retry_that_has_used_up_its_time_expires_instead() -> None:
    rig = Rig.busy(wait_s_max=5.0)
    rig.wait("a", max_wait_s=3.0)
    rig.finish("z", after_s=2.0)
    rig.now_s = 50.0
    rig.come_back("a")
    assert rig.tick(at_s=50.75) == []
    told = Rig.only(Expire, rig.tick(at_s=51.0))
    assert (told.id, told.waited_s) == ("a", 3.0)


def test_a_retry_of_one_that_ran_at_once_has_all_its_time() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node()
    rig.start("a")
    rig.now_s = 100.0
    assert rig.come_back("a") == []
    assert rig.core.next_deadline_s() == 105.0


def test_one_that_was_told_to_stop_is_not_started_again() -> None:
    rig = Rig()
    rig.node("n1")
    rig.node("n2")
    rig.start("a")
    rig.give(Revoked("a", "unauthorized"))
    rig.come_back("a")
    assert rig.look().running == 0


@pytest.mark.parametrize("how", ["no time left", "revoked"])
def test_the_next_may_have_the_slot_that_a_failed_one_leaves(how: str) -> None:
    rig = Rig()
    rig.node()
    rig.start("a", max_wait_s=0.0)
    rig.wait("b")
    if how == "revoked":
        rig.give(Revoked("a"))
    rig.come_back("a")
    assert rig.routed[-1].id == "b"
