"""Model swaps: group by what is in memory, but let nobody wait for ever."""

from __future__ import annotations

import pytest

from forebay.core import Options, OptionsChanged, Revoked

from .rig import Rig

LOAD_S = 10.0
RESIDENCE_S = 4 * LOAD_S


def swap_rig(slots: int = 1, loaded: str = "m", room: int = 1, **options: object) -> Rig:
    """One node that can hold one model of three at a time, and takes ten seconds to load one."""
    rig = Rig(**{"wait_s_max": 1e6, **options})
    rig.node(
        "n", slots, "m", "cold", "third", loaded=(loaded,), loaded_max=room, load_s=LOAD_S
    )  # fmt: skip
    return rig


def serve(rig: Rig, running: str, until_s: float, step_s: float = 1.0) -> str:
    """Keep the model in memory backlogged until a time; return what runs then."""
    number = 0
    while rig.now_s < until_s:
        rig.wait(f"w{rig.now_s}-{number}", user="hot")
        number += 1
        started = rig.finish(running, after_s=step_s)
        assert len(started) == 1
        running = started[0]
        if not running.startswith("w"):
            return running
    return running


def test_what_is_in_memory_goes_before_what_came_earlier() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c1", "cold")
    for name in ("a1", "a2", "a3"):
        rig.wait(name)
    assert rig.run_dry("z") == ["a1", "a2", "a3", "c1"]
    assert rig.look().totals.swaps == 1


def test_interleaved_models_are_collated() -> None:
    rig = swap_rig()
    rig.start("z")
    for number in range(4):
        for model in ("m", "cold", "third"):
            rig.wait(f"{model}{number}", model, user="u")
    order = rig.run_dry("z")
    assert len(order) == 12
    assert rig.look().totals.swaps == 2


def test_nobody_wanting_the_model_in_memory_swaps_at_once() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.wait("c", "cold")
    assert rig.finish("z", after_s=1.0) == ["c"]
    assert rig.look().nodes[0].loaded == ("cold",)
    rig.finish("c", after_s=1.0)
    assert rig.start("a").node == "n"


def test_room_for_two_models_needs_no_swap_rule() -> None:
    rig = swap_rig(slots=2, room=2)
    rig.start("a")
    rig.start("c", "cold")
    assert rig.look().nodes[0].loaded == ("m", "cold")


def test_a_model_that_is_cold_everywhere_is_loaded_where_there_is_room() -> None:
    rig = swap_rig(slots=2)
    rig.node("empty", 1, "m", "cold", loaded=(), load_s=LOAD_S)
    rig.start("z")
    assert rig.start("c", "cold").node == "empty"


def test_a_cold_head_waits_no_longer_than_the_threshold() -> None:
    rig = swap_rig(swap_wait_s=60.0)
    rig.start("z")
    rig.wait("c", "cold")
    assert serve(rig, "z", until_s=5000.0) == "c"
    # Two models wanted, load at most 0.9: 2 * M * S / (1 - 0.9) = 400 s, and the run ending then.
    assert 60.0 <= rig.now_s <= 401.0


def test_a_cold_head_yields_at_least_as_long_as_the_operator_says() -> None:
    rig = swap_rig(swap_wait_s=1000.0)
    rig.start("z")
    rig.wait("c", "cold")
    assert serve(rig, "z", until_s=5000.0) == "c"
    assert 1000.0 <= rig.now_s <= 1001.0


def test_a_model_once_loaded_stays_four_load_times() -> None:
    rig = swap_rig(swap_wait_s=0.0)
    rig.node("n", 1, "m", "cold", loaded=("m",), load_s=LOAD_S)
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
    assert rig.now_s >= loaded_at_s + RESIDENCE_S


def test_the_more_models_are_wanted_the_longer_a_cold_head_yields() -> None:
    rig = swap_rig(swap_wait_s=0.0)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("t", "third")
    assert serve(rig, "z", until_s=5000.0) == "c"
    assert rig.now_s >= 2 * 3 * LOAD_S


def test_both_models_are_served_for_ever_under_lasting_overload() -> None:
    rig = swap_rig(swap_wait_s=0.0, max_size=10_000)
    rig.start("m-0")
    running, served = "m-0", {"m": 0, "cold": 0}
    for number in range(1, 1000):
        for model in ("m", "cold"):
            rig.wait(f"{model}-{number}", model, user=model)
        running = rig.finish(running, after_s=2.0)[0]
        served[running.split("-")[0]] += 1
    assert min(served.values()) > 300
    assert rig.look().totals.swaps <= 2000.0 / RESIDENCE_S


def test_a_higher_class_swaps_after_the_residence_at_the_latest() -> None:
    rig = swap_rig()
    rig.node("n", 1, "m", "cold", loaded=("m",), load_s=LOAD_S)
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


def test_a_job_does_not_put_a_model_out_before_its_residence() -> None:
    rig = swap_rig()
    rig.start("z")
    rig.finish("z", after_s=1.0)
    rig.wait("j", "cold", job=True)
    assert rig.core.next_deadline_s() == RESIDENCE_S
    assert rig.start("a").node == "n"
    assert rig.finish("a", after_s=1.0) == []
    assert Rig.started(rig.tick(at_s=RESIDENCE_S)) == ["j"]


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


def test_the_operator_may_change_how_long_a_cold_head_yields() -> None:
    rig = swap_rig(swap_wait_s=1e6)
    rig.node("n", 1, "m", "cold", loaded=("m",), load_s=0.0)
    rig.start("z")
    rig.wait("c", "cold")
    rig.wait("a1")
    rig.wait("a2")
    assert rig.finish("z", after_s=500.0) == ["a1"]
    rig.give(OptionsChanged(Options(wait_s_max=1e6, swap_wait_s=100.0)))
    assert rig.finish("a1") == ["c"]


def test_a_report_of_what_is_loaded_does_not_unload_what_runs() -> None:
    rig = swap_rig()
    rig.start("c", "cold")
    rig.node("n", 1, "m", "cold", "third", loaded=("m",), load_s=LOAD_S)
    assert "cold" in (rig.look().nodes[0].loaded or ())


def test_three_models_are_all_served_within_the_bound_while_one_is_always_backlogged() -> None:
    """Invariant 10: threshold + drain + M * (S + residence)."""
    rig = swap_rig(swap_wait_s=60.0)
    rig.start("w")
    running, number = "w", 0
    asked_s: dict[str, float] = {}
    longest_s = 0.0
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
    threshold_s = max(60.0, 2 * 3 * LOAD_S / 0.1)
    assert 0.0 < longest_s <= threshold_s + 2.0 + 3 * (LOAD_S + RESIDENCE_S)
    assert all(rig.now_s - since_s <= threshold_s + 152.0 for since_s in asked_s.values())
