"""Who gets how much of one busy node: equal users, weights, and one script against many."""

from dataclasses import replace

import pytest

from .judgement import assert_max_min, assert_no_pair_drifts_apart
from .load import FIFO, ROUND_ROBIN, Load, Party, Station, play

SETTLED_S = 0.5
"""In the first instant whoever comes first finds every slot free, and may take them all."""


def equal_users(slots: int) -> Load:
    parties = tuple(Party(f"u{number}", backlog=10) for number in range(5))
    return Load(parties, (Station(slots=slots),))


def a_script_and_many_light_users() -> Load:
    """One keeps 60 waiting; ten send one request each 20 s, well below their fair share."""
    light = tuple(
        Party(f"light{number}", times=tuple(number + 20.0 * turn for turn in range(1, 19)))
        for number in range(10)
    )
    return Load((Party("script", backlog=60), *light), duration_s=400.0)


def weighted_users(slots: int) -> Load:
    parties = [Party(f"w{weight}", backlog=20, weight=float(weight)) for weight in (1, 2, 4)]
    return Load(tuple(parties), (Station(slots=slots),), duration_s=300.0)


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_equal_users_get_equal_shares(slots: int) -> None:
    log = play(equal_users(slots))
    assert_max_min(log, SETTLED_S, 200.0, slack=2.0)
    assert_no_pair_drifts_apart(log, bound=2.0)


def test_light_users_get_all_they_ask_for_beside_a_script() -> None:
    log = play(a_script_and_many_light_users())
    assert_max_min(log, 0.0, 400.0, slack=2.0)
    waits_s = [one.waited_s for one in log.dispatches if one.user.startswith("light")]
    assert len(waits_s) == 180
    assert max(waits_s) <= 2.0  # what runs, and one more where two came together


def test_first_come_first_served_gives_the_line_to_the_script_and_is_caught() -> None:
    log = play(replace(a_script_and_many_light_users(), options=FIFO))
    waits_s = [one.waited_s for one in log.dispatches if one.user.startswith("light")]
    assert min(waits_s) > 50.0
    with pytest.raises(AssertionError, match="drift"):
        assert_no_pair_drifts_apart(log, bound=2.0)


def test_first_come_first_served_lets_the_larger_backlog_win_and_is_caught() -> None:
    crowd = (Party("script", backlog=60), *(Party(f"u{number}", backlog=2) for number in range(5)))
    fair, unfair = Load(crowd, options=ROUND_ROBIN), Load(crowd, options=FIFO)
    assert_max_min(play(fair), 0.0, 200.0, slack=1.0)
    with pytest.raises(AssertionError, match="fair is"):
        assert_max_min(play(unfair), 0.0, 200.0, slack=1.0)


@pytest.mark.parametrize("slots", [1, 4])
def test_weights_one_two_four_divide_the_node_one_two_four(slots: int) -> None:
    log = play(weighted_users(slots))
    assert_max_min(log, SETTLED_S, 300.0, slack=2.0)
    assert_no_pair_drifts_apart(log, bound=2.0)
    served = log.served(SETTLED_S)
    assert served["w4"] / served["w1"] == pytest.approx(4.0, rel=0.05)


def test_weights_that_nobody_tells_the_scheduler_are_missed_and_it_is_caught() -> None:
    load = weighted_users(1)
    unweighted = replace(load, parties=tuple(replace(party, weight=1.0) for party in load.parties))
    log = play(unweighted)
    log.load = load
    with pytest.raises(AssertionError, match="fair is"):
        assert_max_min(log, 0.0, 300.0, slack=2.0)


def test_a_light_user_with_a_weight_below_one_still_gets_what_it_asks_for_below_its_share() -> None:
    light = Party("light", times=tuple(10.0 * turn for turn in range(1, 19)), weight=0.5)
    log = play(Load((Party("heavy", backlog=20), light)))
    assert_max_min(log, 0.0, 200.0, slack=4.0)
    assert log.served()["light"] == 18
