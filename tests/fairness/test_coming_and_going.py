"""Users who leave and come back, and users who are new: no credit, no punishment."""

import pytest

from forebay.core.options import Options

from .doubles import LeastServedFirst
from .judgement import assert_max_min, assert_no_pair_drifts_apart, largest_cost_over_weight
from .load import TOKENS, Load, Log, Party, play, roomy

RETURN_S = 100.0


def one_returns_after_idling(options: Options) -> Load:
    """Both send at first; `away` pauses until `RETURN_S` and then sends without end."""
    return Load(
        (
            Party("steady", backlog=10),
            Party("away", times=(0.0, 0.0, 0.0)),
            Party("away", backlog=10, start_s=RETURN_S),
        ),
        options=options,
        duration_s=200.0,
    )


def first_turns_after(log: Log, user: str, start_s: float) -> int:
    """Return how many turns in a row the user got from `start_s` on, at the most."""
    longest = row = 0
    for one in log.dispatches:
        if one.at_s >= start_s:
            row = row + 1 if one.user == user else 0
            longest = max(longest, row)
    return longest


def round_robin(burst: float = 0.0) -> Options:
    return roomy(burst=burst)


def test_idling_banks_no_credit() -> None:
    log = play(one_returns_after_idling(round_robin()))
    assert_max_min(log, RETURN_S, 200.0, slack=1.0)
    assert first_turns_after(log, "away", RETURN_S) <= 2
    assert_no_pair_drifts_apart(log, bound=2.0)


@pytest.mark.parametrize("burst", [1.0, 5.0])
def test_a_returning_user_may_catch_up_by_its_burst_and_no_more(burst: float) -> None:
    log = play(one_returns_after_idling(round_robin(burst)))
    in_a_row = first_turns_after(log, "away", RETURN_S)
    assert burst <= in_a_row <= burst + 2
    assert_max_min(log, RETURN_S + 20.0, 200.0, slack=1.0)


def test_a_scheduler_that_banks_credit_is_caught() -> None:
    log = play(one_returns_after_idling(round_robin()), LeastServedFirst(lift="never"))
    with pytest.raises(AssertionError, match="fair is"):
        assert_max_min(log, RETURN_S, 200.0, slack=1.0)


def test_leaving_and_returning_again_and_again_gains_nothing() -> None:
    pulses = tuple(10.0 * turn for turn in range(20) for _ in range(3))
    log = play(Load((Party("steady", backlog=10), Party("pulse", times=pulses))))
    assert_max_min(log, 0.0, 200.0, slack=2.0)
    assert_no_pair_drifts_apart(log, bound=2.0)


def a_newcomer_among_unequal_users() -> Load:
    """One user has just been served an enormous answer when the newcomer arrives."""
    return Load(
        (
            Party("huge", times=(0.0,), output_tokens=50_000, output_limit=50_000),
            Party("huge", backlog=5, start_s=2.0, output_limit=100),
            Party("small", backlog=10, output_limit=100),
            Party("newcomer", backlog=10, output_limit=100, start_s=20.5),
        ),
        options=TOKENS,
        duration_s=100.0,
    )


def assert_the_newcomer_is_served_at_once(log: Log) -> None:
    after = [one for one in log.dispatches if one.at_s > 20.5]
    users = [one.user for one in after]
    first = users.index("newcomer") if "newcomer" in users else len(users)
    assert first <= 2, f"the newcomer had to wait for {first} others"


def test_a_newcomer_is_not_punished_for_what_others_were_given() -> None:
    log = play(a_newcomer_among_unequal_users())
    assert_the_newcomer_is_served_at_once(log)
    counts = [one.user for one in log.dispatches if one.at_s > 20.5]
    assert abs(counts.count("newcomer") - counts.count("small")) <= 2


def test_a_scheduler_that_lifts_newcomers_to_the_maximum_is_caught() -> None:
    log = play(a_newcomer_among_unequal_users(), LeastServedFirst(lift="to_maximum"))
    with pytest.raises(AssertionError, match="had to wait"):
        assert_the_newcomer_is_served_at_once(log)


def test_a_crowd_of_newcomers_shares_from_its_first_moment() -> None:
    crowd = tuple(
        Party(f"new{number}", backlog=5, start_s=50.0 + 10.0 * number) for number in range(5)
    )
    load = Load((Party("old", backlog=10), *crowd), duration_s=300.0)
    log = play(load)
    assert_no_pair_drifts_apart(log, bound=2 * largest_cost_over_weight(load))
    assert_max_min(log, 100.0, 300.0, slack=2.0)
