"""What the classes above ask for is taken off before a lower class is told its wait."""

import pytest

from core.rig import Rig

SLOTS = 10
SERVICE_S = 1.0
SPAN_S = 300


def rig_after(above_per_s: int, seconds: int = SPAN_S, **options: object) -> Rig:
    """Ten slots, services of a second, and so many of `normal` each second; then all slots busy."""
    rig = Rig(max_size=10_000, wait_s_max=1e9, **options)
    rig.node(slots=SLOTS)
    for second in range(seconds):
        names = [f"n{second}-{number}" for number in range(above_per_s)]
        for name in names:
            rig.start(name)
        rig.now_s += SERVICE_S
        for name in names:
            rig.finish(name)
    for number in range(SLOTS):
        rig.start(f"b{number}")
    return rig


def low_wait_s(rig: Rig, ahead: int = 99) -> float:
    """Return what is told to one of `low` that has so many of its class ahead."""
    for number in range(ahead):
        rig.wait(f"w{number}", user="w", priority="low")
    told = rig.wait("last", user="w", priority="low").p50_s
    assert told is not None
    return told


@pytest.mark.parametrize("above_per_s", [2, 5, 8])
def test_what_came_above_is_taken_to_go_on(above_per_s: int) -> None:
    rig = rig_after(above_per_s, fairness="fifo")
    work_s = 100 * SERVICE_S / SLOTS
    busy_period_s = work_s / (1.0 - above_per_s / SLOTS)
    assert low_wait_s(rig) == pytest.approx(busy_period_s, rel=0.15)


def test_what_came_long_ago_is_forgotten() -> None:
    rig = rig_after(8, fairness="fifo")
    for number in range(SLOTS):
        rig.finish(f"b{number}")
    for second in range(2 * SPAN_S):
        rig.start(f"q{second}", priority="low")
        rig.finish(f"q{second}", after_s=SERVICE_S)
    for number in range(SLOTS):
        rig.start(f"c{number}", priority="low")
    assert low_wait_s(rig) == pytest.approx(100 * SERVICE_S / SLOTS, rel=0.15)


def test_what_still_waits_above_has_come_too() -> None:
    rig = rig_after(5, fairness="fifo")
    for number in range(400):
        rig.wait(f"g{number}")
    told = rig.wait("last", priority="low").p50_s
    above = (5 * SPAN_S + SLOTS + 400) * SERVICE_S / (SLOTS * SPAN_S)
    assert told == pytest.approx(400 * SERVICE_S / SLOTS / (1.0 - above), rel=0.1)


def test_those_who_leave_before_they_run_are_not_counted() -> None:
    rig = rig_after(5, fairness="fifo")
    for number in range(2000):
        rig.wait(f"g{number}")
        rig.cancel(f"g{number}")
    assert low_wait_s(rig) == pytest.approx(2 * 100 * SERVICE_S / SLOTS, rel=0.15)


def test_one_of_high_is_told_the_same_whatever_comes_below() -> None:
    calm, busy = rig_after(1, fairness="fifo"), rig_after(8, fairness="fifo")
    told = [rig.wait("h", priority="high").p50_s for rig in (calm, busy)]
    assert told[0] == pytest.approx(told[1])


def test_a_lost_node_leaves_less_to_the_classes_below_at_once() -> None:
    rig = Rig(max_size=10_000, wait_s_max=1e9, fairness="fifo")
    rig.node("a", slots=SLOTS)
    rig.node("b", slots=SLOTS)
    for second in range(SPAN_S):
        for number in range(5):
            rig.start(f"n{second}-{number}")
        rig.now_s += SERVICE_S
        for number in range(5):
            rig.finish(f"n{second}-{number}")
    rig.node("b", slots=SLOTS, state="offline")
    for number in range(SLOTS):
        rig.start(f"b{number}")
    assert low_wait_s(rig) == pytest.approx(2 * 100 * SERVICE_S / SLOTS, rel=0.15)


def test_the_first_of_a_class_is_not_told_more_than_the_lane_has_been_seen() -> None:
    rig = rig_after(SLOTS, seconds=20, fairness="fifo")
    for number in range(3 * SLOTS):
        rig.wait(f"w{number}")
    told = rig.wait("first", priority="low").p50_s
    assert told is not None
    assert told <= 1.5 * 20


def test_with_shares_for_classes_the_pace_decides() -> None:
    strict = low_wait_s(rig_after(8, fairness="fifo"))
    shared = low_wait_s(rig_after(8, fairness="fifo", class_order="weighted"))
    assert shared < strict


def test_where_another_model_has_slots_of_the_nodes_the_pace_decides() -> None:
    rig = Rig(max_size=10_000, wait_s_max=1e9, fairness="fifo")
    rig.node("a", SLOTS, "m", "other")
    for second in range(SPAN_S):
        rig.start(f"n{second}")
        rig.start(f"o{second}", "other")
        rig.now_s += SERVICE_S
        rig.finish(f"n{second}")
        rig.finish(f"o{second}")
    lane = rig.core._book.cluster.lanes["m", "openai"]
    assert lane.demand.left(lane.queues[2], SLOTS, SERVICE_S, rig.now_s) is None
