"""Model swaps: group by what is in memory, but let nobody wait for ever."""

from __future__ import annotations

import pytest

from forebay.core import Expire, NodeChanged, Options, OptionsChanged, Revoked
from forebay.errors import NotAllowed

from .rig import Rig
from .swap_rig import LAST_CALL_S, LOAD_S, RESIDENCE_S, serve, swap_rig

# -- grouping


def test_what_is_in_memory_goes_before_what_came_earlier() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c1", "cold")
    for name in ("a1", "a2", "a3"):
        rig.wait(name)
    assert rig.run_dry("z") == ["a1", "a2", "a3", "c1"]
    assert rig.look().totals.swaps == 1


def test_nobody_wanting_the_model_in_memory_swaps_at_once() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c", "cold")
    assert rig.finish("z", after_s=1.0) == ["c"]
    assert rig.look().nodes[0].loaded == ("cold",)
    rig.finish("c", after_s=1.0)
    assert rig.start("a").node == "n"


# -- share, and when a cold queue is due


def test_a_cold_head_has_its_turn_once_it_has_waited_and_the_residence_is_over() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c", "cold")
    assert serve(rig, "z", until_s=5000.0) == "c"
    assert rig.now_s == RESIDENCE_S


def test_a_cold_head_yields_at_least_as_long_as_the_operator_says() -> None:
    rig = swap_rig(swap_wait_s=1000.0)
    rig.start("z")
    rig.wait("c", "cold")
    assert serve(rig, "z", until_s=5000.0) == "c"
    assert rig.now_s == 1000.0


@pytest.mark.parametrize(("share", "loads"), [(0.1, 9.0), (0.25, 3.0), (0.5, 1.0), (1.0, 0.0)])
def test_a_model_once_loaded_serves_as_long_as_the_share_says(share: float, loads: float) -> None:
    rig = swap_rig(swap_wait_s=0.0, swap_share=share)
    rig.start("z", "cold")
    rig.wait("a")
    loaded_at_s = rig.now_s + LOAD_S
    running = "z"
    for number in range(1000):
        rig.wait(f"c{number}", "cold")
        running = rig.finish(running, after_s=1.0)[0]
        if running == "a":
            break
    assert running == "a"
    assert rig.now_s == max(1.0, loaded_at_s + loads * LOAD_S)


def test_age_counts_on_when_a_request_moves_up_a_class() -> None:
    rig = swap_rig(aging_s=10.0)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("a", priority="high")
    rig.finish("z", after_s=RESIDENCE_S - 1.0)
    rig.wait("b", priority="high")
    assert rig.finish("a", after_s=1.0) == ["c"]  # as one of its class since ten seconds


# -- last call


def test_at_its_last_call_a_cold_head_does_not_wait_for_the_residence() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c", "cold", max_wait_s=20.0)
    assert serve(rig, "z", until_s=100.0) == "c"
    assert rig.now_s == 20.0 - 1.0 - 2.0  # the p90 of the others' services, and two seconds


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25])
def test_before_one_and_a_half_loads_there_is_no_last_call_whatever_the_share(share: float) -> None:
    rig = swap_rig(swap_share=share)
    rig.start("z")
    rig.wait("c", "cold", max_wait_s=16.0)
    assert serve(rig, "z", until_s=100.0) == "c"
    assert rig.now_s == LAST_CALL_S
    late = swap_rig(swap_share=share)
    late.start("z")
    late.wait("c", "cold", max_wait_s=14.0)
    assert serve(late, "z", until_s=29.0) != "c"


def test_the_last_call_comes_earlier_for_those_who_are_later_in_turn() -> None:
    rig = swap_rig(wait_s_max=60.0)
    rig.now_s = 100.0
    rig.start("z")
    rig.finish("z", after_s=5.0)  # now a service is known to take five seconds
    rig.start("y")
    rig.wait("c", "cold")
    rig.wait("t", "third", max_wait_s=25.0)
    rig.wait("a")
    rig.wait("b")
    # For `third` there are left 20 s, which are no more than 5 + 2 + (10 + 5).
    assert rig.finish("y", after_s=5.0) == ["c"]
    assert rig.finish("c", after_s=LOAD_S + 5.0) == ["t"]


def test_no_model_leaves_for_one_that_can_no_longer_be_reached() -> None:
    rig = swap_rig(slots=2, wait_s_max=30.0)
    rig.now_s = 100.0
    rig.start("z")
    rig.finish("z", after_s=50.0)
    rig.start("y")
    rig.start("x")
    rig.wait("c", "cold")
    rig.wait("a")
    assert rig.finish("x", after_s=24.0, ok=False) == ["a"]  # `y` runs for 26 s yet, `c` has 6
    assert any(isinstance(action, Expire) for action in rig.tick(at_s=rig.now_s + 6.0))


def test_there_is_no_last_call_for_one_that_those_before_it_in_turn_keep_from_being_reached() -> (
    None
):
    rig = swap_rig(wait_s_max=24.0)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("t", "third")  # when there may be a last call it has 9 s left, and a load takes 10
    assert serve(rig, "z", until_s=30.0) == "c"
    assert rig.now_s == 24.0 - 1.0 - 2.0


def test_a_model_that_is_served_elsewhere_has_no_last_call() -> None:
    rig = swap_rig(wait_s_max=20.0)
    rig.node("other", 1, "cold")
    rig.start("z")
    rig.start("c0", "cold")
    rig.wait("c", "cold")
    serve(rig, "z", until_s=25.0)
    assert rig.look().totals.swaps == 0


# -- in turn


def test_the_model_longest_out_of_memory_is_next_though_its_head_is_younger() -> None:
    rig = swap_rig()
    rig.start("c0", "cold")
    rig.finish("c0", after_s=LOAD_S + 1.0)  # `third` was never there, and `m` until the start
    rig.start("z")
    rig.wait("c", "cold")
    rig.now_s += 20.0
    rig.wait("t", "third")
    assert rig.finish("z", after_s=1.0) == ["t"]
    assert rig.finish("t", after_s=1.0) == ["c"]


def test_the_next_in_turn_goes_at_anothers_last_call() -> None:
    rig = swap_rig(wait_s_max=60.0)
    rig.start("c0", "cold")
    rig.finish("c0", after_s=LOAD_S + 1.0)
    rig.start("z")
    rig.wait("c", "cold", max_wait_s=40.0)
    rig.wait("t", "third")
    assert serve(rig, "z", until_s=rig.now_s + 60.0) == "t"
    assert rig.finish("t", after_s=LOAD_S + 1.0) == ["c"]


def test_a_higher_class_is_first_in_turn() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("t", "third")
    rig.wait("c", "cold", priority="high")
    assert rig.run_dry("z") == ["c", "t"]


def test_what_another_node_has_in_memory_comes_after_what_none_has() -> None:
    rig = swap_rig()
    rig.node("other", 1, "cold")
    rig.start("z")
    rig.start("c0", "cold")
    rig.wait("c", "cold")
    rig.wait("t", "third")
    assert rig.finish("z", after_s=1.0) == ["t"]


# -- classes


def test_a_higher_class_swaps_after_the_residence_at_the_latest() -> None:
    rig = swap_rig(swap_wait_s=1e6)
    rig.start("z")
    rig.wait("h", "cold", priority="high")
    rig.wait("a1")
    rig.wait("a2")
    assert rig.finish("z", after_s=1.0) == ["a1"]
    rig.wait("a3")
    assert rig.finish("a1", after_s=RESIDENCE_S) == ["h"]


def test_a_higher_class_with_a_warm_model_is_not_kept_waiting_by_a_drain() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("c", "cold")
    rig.arrive("a")
    assert rig.start("h", priority="high").node == "n"


def test_a_higher_class_says_which_model_comes_where_one_leaves_already() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("t", "third", priority="high")
    assert rig.finish("z", after_s=1.0)[0] == "t"


# -- draining


def test_a_swap_waits_for_what_runs_and_nothing_new_gets_in_before_it() -> None:
    rig = swap_rig(slots=2)
    rig.start("y")
    rig.start("z")
    rig.wait("c", "cold")
    assert rig.finish("y") == []
    assert rig.look().nodes[0].loaded == ("m",)
    assert rig.wait("a").reason == "turn"
    assert rig.finish("z") == ["c"]
    assert rig.look().nodes[0].loaded == ("cold",)


def test_who_comes_while_a_node_drains_may_be_next_in_turn() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("c", "cold")
    assert rig.finish("z", after_s=1.0) == ["c"]
    rig.wait("a")
    rig.tick(at_s=rig.now_s + LOAD_S)  # nobody waits for `cold`: the node drains, as yet for `m`
    rig.wait("t", "third")
    assert rig.finish("c", after_s=1.0) == ["t"]


def test_until_a_model_is_ready_those_who_want_it_may_join() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("c", "cold")
    rig.finish("z", after_s=1.0)
    rig.wait("a")
    rig.now_s += LOAD_S / 2
    assert rig.start("c1", "cold").node == "n"
    rig.finish("c1", after_s=LOAD_S / 2)
    assert rig.wait("c2", "cold").reason == "turn"
    assert rig.finish("c", after_s=1.0) == ["a"]


@pytest.mark.parametrize("how", ["cancel", "revoke", "expire", "displace"])
def test_a_drain_is_given_up_when_those_it_is_for_are_gone(how: str) -> None:
    rig = swap_rig(slots=2, when_full="displace", max_size=2)
    rig.start("z")
    rig.wait("c", "cold", max_wait_s=5.0)
    rig.wait("b")
    actions = {
        "cancel": lambda: rig.cancel("c"),
        "revoke": lambda: rig.give(Revoked("c")),
        "expire": lambda: rig.tick(at_s=5.0),
        "displace": lambda: rig.give_arrival("h", priority="high"),
    }[how]()
    started = [route.id for route in rig.routed]
    assert "b" in started or "h" in started, actions


def test_a_drain_is_given_up_when_another_node_takes_its_waiter() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("a")
    assert set(Rig.started(rig.node("other", 1, "cold"))) == {"c", "a"}


# -- several models in memory


def two_in_memory(slots: int) -> Rig:
    """Hold `m` and `cold` together; `third` would have to replace one of them."""
    rig = swap_rig(slots=slots, room=2)
    rig.start("m0")
    if slots == 1:
        rig.finish("m0", after_s=1.0)
    rig.start("c0", "cold")
    if slots == 1:
        rig.finish("c0", after_s=LOAD_S + 1.0)
    return rig


def test_of_two_models_in_memory_the_least_wanted_makes_room() -> None:
    rig = two_in_memory(slots=1)
    rig.now_s = 200.0
    rig.start("c1", "cold")
    for name, model in (("t", "third"), ("c2", "cold"), ("a", "m"), ("b", "m")):
        rig.wait(name, model)
    assert rig.finish("c1", after_s=20.0) == ["t"]
    assert rig.look().nodes[0].loaded == ("m", "third")


def test_a_drain_of_one_model_does_not_keep_the_other_from_serving() -> None:
    rig = two_in_memory(slots=3)
    rig.start("x")
    rig.wait("t", "third")
    rig.wait("c1", "cold")
    rig.wait("a")
    rig.cancel("a")
    assert rig.finish("c0", after_s=40.0) == ["c1"]  # `m`, the older, is to leave
    rig.finish("c1")
    assert rig.start("c2", "cold").node == "n"
    rig.finish("x")
    assert rig.wait("b").reason == "turn"
    assert rig.finish("m0")[0] == "t"


def test_loads_for_three_others_do_not_starve_a_model_that_stays_in_memory() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 1, "m", "b", "c", "d", loaded=("m", "b"), loaded_max=2, load_s=2.0)
    rig.start("m-0")
    for number, model in enumerate("mmmbcd"):
        rig.wait(f"{model}-{number + 1}", model, user=model)
    running, served = "m-0", dict.fromkeys("mbcd", 0)
    for number in range(100):
        model = running[0]
        served[model] += 1
        rig.wait(f"{model}+{number}", model, user=model)
        (running,) = rig.finish(running, after_s=8.0)
    assert min(served.values()) >= 20, served


# -- jobs


def test_a_job_does_not_put_a_model_out_before_its_residence() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.finish("z", after_s=1.0)
    rig.wait("j", "cold", job=True)
    assert rig.core.next_deadline_s() == RESIDENCE_S
    assert rig.start("a").node == "n"
    assert rig.finish("a", after_s=1.0) == []
    assert Rig.started(rig.tick(at_s=RESIDENCE_S)) == ["j"]


@pytest.mark.parametrize("order", ["strict", "weighted"])
def test_a_job_never_puts_a_model_out_while_somebody_waits_for_it(order: str) -> None:
    rig = swap_rig(slots=2, class_order=order)
    rig.now_s = 100.0
    rig.start("z")
    rig.wait("j", "cold", job=True)  # the node drains for it, since nobody live waits
    assert rig.start("a").node == "n"
    running = ["z", "a"]
    for number in range(20):
        rig.wait(f"b{number}", user="b")
        rig.wait(f"c{number}", user="c")
        running += rig.finish(running.pop(0), after_s=10.0)
        running += rig.finish(running.pop(0))
        assert "j" not in running
        assert len(running) == 2


def test_a_younger_job_does_not_overtake_one_that_yields() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("j1", "cold", job=True, user="u")
    rig.finish("z", after_s=1.0)
    rig.wait("j2", "cold", job=True, user="u")
    assert Rig.started(rig.tick(at_s=RESIDENCE_S)) == ["j1"]


def test_a_job_joins_when_its_model_is_loaded_for_somebody_else() -> None:
    rig = swap_rig(slots=2)
    rig.start("z")
    rig.wait("j", "cold", job=True)
    rig.finish("z", after_s=1.0)
    rig.arrive("c", "cold")
    assert {route.id for route in rig.routed} == {"z", "j", "c"}


# -- what may change


def test_the_operator_may_change_how_long_a_cold_head_yields() -> None:
    rig = swap_rig(swap_wait_s=1e6)
    rig.node("n", 1, "m", "cold", loaded=("m",), load_s=LOAD_S)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("a1")
    rig.wait("a2")
    assert rig.finish("z", after_s=500.0) == ["a1"]
    rig.give(OptionsChanged(Options(wait_s_max=1e6, swap_wait_s=100.0)))
    assert rig.finish("a1") == ["c"]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.1, float("nan")])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(NotAllowed, match="swap_share"):
        Rig(swap_share=share)


def test_a_report_of_what_is_loaded_does_not_unload_what_runs() -> None:
    rig = swap_rig()
    rig.start("c", "cold")
    rig.node("n", 1, "m", "cold", "third", loaded=("m",), load_s=LOAD_S)
    assert "cold" in (rig.look().nodes[0].loaded or ())


def test_a_drain_ends_when_the_model_is_reported_to_be_there_already() -> None:
    rig = swap_rig(slots=3)
    rig.start("z")
    rig.wait("c", "cold")  # the node drains for it
    rig.wait("a")
    report = NodeChanged(
        "n", 3, ("m", "cold", "third"), loaded=("m", "cold"), loaded_max=2, load_s=LOAD_S
    )
    assert set(Rig.started(rig.give(report))) == {"a", "c"}


def test_a_report_says_which_model_has_left_the_memory() -> None:
    rig = swap_rig()
    rig.now_s = 50.0
    rig.give(NodeChanged("n", 1, ("m", "cold", "third"), loaded=("cold",), load_s=LOAD_S))
    rig.start("z", "cold")
    rig.wait("a")
    rig.wait("t", "third")
    assert rig.finish("z", after_s=1.0) == ["t"]


def test_three_models_are_all_served_within_the_bound_while_one_is_always_backlogged() -> None:
    """Invariant 10: swap_wait + M * (S + residence + drain)."""
    rig = swap_rig()
    rig.start("w")
    running, number = "w", 0
    asked_s: dict[str, float] = {}
    longest_s = 0.0
    bound_s = 15.0 + 3 * (LOAD_S + RESIDENCE_S + 2.0)
    while rig.now_s < 6000.0:
        number += 1
        rig.arrive(f"w{number}", user="hot")
        if number % 100 == 0:
            for model in ("cold", "third"):
                asked_s[f"{model}{number}"] = rig.now_s
                rig.arrive(f"{model}{number}", model, user=model)
        running = rig.finish(running, after_s=2.0)[0]
        if running in asked_s:
            longest_s = max(longest_s, rig.now_s - asked_s.pop(running))
    assert 0.0 < longest_s <= bound_s
    assert all(rig.now_s - since_s <= bound_s for since_s in asked_s.values())
