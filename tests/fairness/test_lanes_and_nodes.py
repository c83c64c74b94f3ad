"""Sharing where models meet: two lanes on one node, and two nodes of different speed."""

import pytest

from .judgement import assert_max_min, assert_no_pair_drifts_apart
from .load import FIFO, Load, Log, Party, Station, play

BOTH = (Station(models=("a", "b")),)
APART = (Station("fast", models=("a",)), Station("slow", models=("b",), slowness=20.0))


def test_two_lanes_on_one_node_share_as_if_all_stood_in_one_line() -> None:
    parties = (
        Party("alone", backlog=10, models=("a",)),
        *(Party(f"crowd{number}", backlog=10, models=("b",)) for number in range(3)),
    )
    log = play(Load(parties, BOTH, duration_s=200.0))
    assert_max_min(log, 0.0, 200.0, slack=1.0)
    assert_no_pair_drifts_apart(log, bound=2.0)


def test_spreading_over_two_models_buys_no_second_share() -> None:
    parties = (
        Party("spread", backlog=10, models=("a", "b")),
        Party("plain", backlog=10, models=("a",)),
        Party("other", backlog=10, models=("b",)),
    )
    log = play(Load(parties, BOTH, duration_s=300.0))
    assert_max_min(log, 0.0, 300.0, slack=3.0)


def test_first_come_first_served_over_two_lanes_is_caught() -> None:
    parties = (
        Party("script", backlog=50, models=("a",)),
        Party("light", backlog=2, models=("b",)),
    )
    fair = play(Load(parties, BOTH))
    assert_max_min(fair, 0.0, 200.0, slack=1.0)
    with pytest.raises(AssertionError, match="fair is"):
        assert_max_min(play(Load(parties, BOTH, FIFO)), 0.0, 200.0, slack=1.0)


def on_the_fast_node(log: Log, start_s: float) -> dict[str, float]:
    return dict(log.served(start_s, node="fast"))


def test_a_slow_node_does_not_wind_up_the_clock_of_a_fast_one() -> None:
    """`both` waits at the slow node too; on the fast one it is a user like any other."""
    parties = (
        Party("both", backlog=10, models=("a",)),
        Party("both", backlog=10, models=("b",)),
        Party("fast", backlog=10, models=("a",)),
        Party("slow", backlog=10, models=("b",)),
    )
    log = play(Load(parties, APART, duration_s=400.0))
    fast = on_the_fast_node(log, 0.0)
    assert fast["both"] == pytest.approx(fast["fast"], abs=2)
    slow = log.served(node="slow")
    assert slow["both"] == pytest.approx(slow["slow"], abs=2)


def test_who_moves_from_a_slow_lane_to_a_fast_one_brings_neither_credit_nor_debt() -> None:
    parties = (
        Party("mover", times=tuple(20.0 * turn for turn in range(10)), models=("b",)),
        Party("mover", backlog=10, models=("a",), start_s=200.0),
        Party("resident", backlog=10, models=("a",)),
        Party("slow", backlog=10, models=("b",)),
    )
    log = play(Load(parties, APART, duration_s=300.0))
    fast = on_the_fast_node(log, 200.0)
    assert fast["mover"] == pytest.approx(fast["resident"], abs=2)


def test_users_of_a_lane_keep_their_order_while_its_only_node_is_busy_with_others() -> None:
    """Three users of a rare lane get turns in turn, however far the other lane's clock has run."""
    parties = (
        Party("busy", backlog=20, models=("a",)),
        *(Party(f"rare{number}", backlog=5, models=("b",), start_s=100.0) for number in range(3)),
    )
    log = play(Load(parties, BOTH, duration_s=300.0))
    rare = [one.user for one in log.dispatches if one.user.startswith("rare")]
    assert all(len(set(rare[turn : turn + 3])) == 3 for turn in range(0, len(rare) - 3, 3))
    assert_max_min(log, 100.0, 300.0, slack=1.0)
