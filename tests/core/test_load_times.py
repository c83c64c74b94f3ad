"""What a load means for a caller's own limit at the door, and for measured service times."""

from __future__ import annotations

from itertools import groupby

from .rig import Rig
from .swap_rig import LOAD_S, RESIDENCE_S, serve, swap_rig

# -- the door


def served_once(load_s: float = LOAD_S) -> Rig:
    """A node whose model `m` is known to take five seconds, half of its residence being over."""
    rig = Rig(wait_s_max=60.0)
    rig.node("n", 1, "m", "cold", "third", loaded=("m",), load_s=load_s)
    rig.now_s = 100.0
    rig.start("z")
    rig.finish("z", after_s=5.0)
    rig.start("y")
    rig.wait("a")
    return rig


def test_a_limit_that_the_earliest_turn_meets_is_no_reason_to_refuse() -> None:
    rig = served_once(load_s=20.0)
    assert rig.wait("c", "cold", max_wait_s=6.0).position == 1
    assert rig.finish("y", after_s=5.0) == ["c"]


def test_a_limit_shorter_than_what_runs_is_refused_at_the_door() -> None:
    rig = served_once()
    refused = rig.refuse("c", "cold", max_wait_s=4.0)
    assert (refused.code, refused.estimate_s) == ("deadline_unreachable", 5.0)


def test_the_door_counts_half_of_the_residence_and_the_models_before() -> None:
    rig = served_once()
    rig.finish("y", after_s=5.0)
    rig.wait("c", "cold")
    rig.wait("b")
    rig.finish("a", after_s=5.0)
    rig.now_s += 5.0
    assert rig.finish("b") == ["c"]
    rig.wait("d")
    rig.wait("c1", "cold")
    # `third` was never in memory, so it goes before `m`, which has just left it. `cold` can serve
    # in 10 s, and half of its residence is 15 s.
    assert rig.refuse("t", "third", max_wait_s=24.0).estimate_s == 25.0
    assert rig.wait("u", "third", max_wait_s=26.0).position == 1
    assert rig.refuse("e", "m", max_wait_s=39.0).estimate_s == 25.0 + (10.0 + 5.0) + 5.0


def test_the_default_limit_never_refuses_at_the_door() -> None:
    rig = served_once(load_s=500.0)
    for number in range(20):
        rig.wait(f"c{number}", "cold", user=f"u{number}")


# -- how long a load takes


def test_a_load_is_no_part_of_a_service_time() -> None:
    rig = swap_rig()
    rig.start("c", "cold")
    rig.finish("c", after_s=LOAD_S + 5.0)
    (lane,) = [lane for lane in rig.look().lanes if lane.model == "cold"]
    assert lane.service_s == 5.0
    assert rig.look().average_service_s == 5.0


def test_while_a_model_loads_the_wait_behind_it_is_the_rest_of_the_load_and_the_service() -> None:
    rig = swap_rig()
    rig.start("c", "cold")
    rig.finish("c", after_s=LOAD_S + 4.0)
    rig.start("a")
    rig.finish("a", after_s=LOAD_S + 4.0)
    rig.start("d", "cold")
    rig.now_s += 3.0
    assert rig.wait("e", "cold").p50_s == (LOAD_S - 3.0) + 4.0


def test_where_the_node_does_not_tell_the_load_time_is_measured() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 1, "m", "cold", loaded=("m",))
    rig.start("a0")
    for number in range(6):
        rig.finish(f"a{number}", after_s=5.0 if not number else LOAD_S + 5.0)
        rig.start(f"c{number}", "cold")
        rig.finish(f"c{number}", after_s=LOAD_S + 3.0)
        rig.start(f"a{number + 1}")
    (lane,) = [lane for lane in rig.look().lanes if lane.model == "cold"]
    assert lane.service_s is not None
    assert 2.0 < lane.service_s < 6.0
    since_s = rig.now_s + LOAD_S
    rig.wait("c", "cold")
    rig.wait("b")
    assert rig.finish("a6", after_s=LOAD_S + 5.0) == ["b"]
    assert serve(rig, "b", until_s=1000.0, step_s=5.0) == "c"
    assert 0.8 * RESIDENCE_S < rig.now_s - since_s < 1.2 * RESIDENCE_S


def test_a_load_is_measured_although_no_run_begins_with_its_model_in_memory() -> None:
    rig = Rig(wait_s_max=1e6, max_size=1000)
    rig.node("n", 1, "m", "cold", loaded=())
    rig.start("a")
    for number in range(200):
        rig.wait(f"a{number}")
        rig.wait(f"c{number}", "cold")
    running, models, at_s = "a", "", 0.0
    while rig.now_s < 1000.0:
        at_s += 5.0 + LOAD_S * (models[-1:] != running[0])
        models += running[0]
        (running,) = rig.finish(running, after_s=at_s - rig.now_s)
    turns = [len(list(turn)) for _, turn in groupby(models)]
    assert len(turns) > 8
    assert {5.0 * turn for turn in turns[1:-1]} == {RESIDENCE_S}


def test_what_starts_while_its_model_loads_tells_no_service_time() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 2, "m", "cold", loaded=())
    rig.start("a")
    rig.now_s += 4.0
    rig.start("b")
    rig.finish("b", after_s=LOAD_S - 4.0 + 1.0)  # only now it is certain that the load is over
    rig.start("c")
    assert rig.look().average_service_s is None
    rig.finish("c", after_s=2.0)
    rig.finish("a", after_s=1.0)
    (lane,) = [lane for lane in rig.look().lanes if lane.model == "m"]
    assert lane.service_s == 2.0


def test_after_a_cancelled_load_the_next_answer_tells_that_the_model_is_there() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 1, "m", "cold", loaded=())
    rig.start("a")
    rig.wait("b")
    rig.now_s += 1.0
    assert Rig.started(rig.cancel("a")) == ["b"]
    rig.wait("c")
    assert rig.finish("b", after_s=LOAD_S + 3.0) == ["c"]
    assert rig.look().average_service_s is None
    rig.finish("c", after_s=3.0)
    assert rig.look().average_service_s == 3.0


def test_one_that_came_back_measures_no_load() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 1, "m", "cold", loaded=("m",))
    rig.start("a")
    rig.finish("a", after_s=5.0)
    rig.start("c", "cold")
    rig.now_s += 30.0
    assert Rig.started(rig.come_back("c", exclude=False)) == ["c"]
    rig.finish("c", after_s=4.0)
    (lane,) = [lane for lane in rig.look().lanes if lane.model == "cold"]
    assert lane.service_s == 4.0


def test_one_long_answer_does_not_spoil_the_measured_load_time() -> None:
    rig = Rig(wait_s_max=1e6)
    rig.node("n", 1, "m", "cold", loaded=("m",))
    rig.start("a")
    rig.finish("a", after_s=5.0)
    for number, service_s in enumerate((5.0, 5.0, 500.0)):
        for model in ("cold", "m"):
            rig.start(f"{model}{number}", model)
            rig.finish(f"{model}{number}", after_s=LOAD_S + service_s)
    rig.start("b")
    rig.wait("c", "cold")
    rig.now_s += RESIDENCE_S
    rig.wait("a1")
    assert rig.finish("b") == ["c"]
