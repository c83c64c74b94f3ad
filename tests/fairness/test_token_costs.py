"""Fair sharing of tokens: unequal costs, estimates that are wrong, and the true-up."""

from dataclasses import replace

import pytest

from forebay.core.options import Options

from .judgement import assert_max_min, assert_no_pair_drifts_apart, largest_cost_over_weight
from .load import ROUND_ROBIN, TOKENS, Load, Log, Party, Station, play

SETTLED_S = 0.5
"""In the first instant whoever comes first finds every slot free, and may take them all."""


def long_and_short_answers(slots: int) -> Load:
    """Everyone gives a limit and uses it up; a limit above the median is not believed."""
    return Load(
        (
            Party("essay", backlog=20, output_tokens=900, output_limit=900, service_s=9.0),
            Party("chat", backlog=20, output_tokens=100, output_limit=100, service_s=1.0),
            Party("code", backlog=20, output_tokens=400, output_limit=400, service_s=4.0),
        ),
        (Station(slots=slots),),
        TOKENS,
        duration_s=2000.0,
    )


def surprising_answers(slots: int) -> Load:
    """Nobody gives a limit: everyone is charged the lane's median, and trued up at the end."""
    return Load(
        (
            Party("long", backlog=20, output_tokens=1200, service_s=12.0),
            Party("short", backlog=20, output_tokens=20, service_s=1.0),
            Party("middle", backlog=20, output_tokens=300, service_s=3.0),
        ),
        (Station(slots=slots),),
        TOKENS,
        duration_s=3000.0,
    )


def estimate_error(load: Load) -> float:
    """Return the most an estimate can be off: a median lies between the smallest and largest."""
    outputs = [party.output_tokens for party in load.parties]
    guess = load.options.output_tokens_unmeasured
    return load.options.output_weight * (max(*outputs, guess) - min(*outputs, guess))


@pytest.mark.parametrize("slots", [1, 4])
def test_users_get_the_same_tokens_however_long_their_answers(slots: int) -> None:
    load = long_and_short_answers(slots)
    log = play(load)
    bound = 2 * largest_cost_over_weight(load) + slots * estimate_error(load)
    assert_max_min(log, SETTLED_S, 2000.0, slack=bound)
    assert_no_pair_drifts_apart(log, bound)


def test_counting_requests_instead_of_tokens_is_caught() -> None:
    load = long_and_short_answers(1)
    log = play(replace(load, options=ROUND_ROBIN))
    costs = {party.user: load.cost(party) for party in load.parties}
    in_tokens = Log(
        load,
        [replace(one, cost=costs[one.user]) for one in log.dispatches],
        [(at_s, user, costs[user]) for at_s, user, _ in log.offered],
    )
    bound = 2 * largest_cost_over_weight(load) + estimate_error(load)
    with pytest.raises(AssertionError, match="fair is"):
        assert_max_min(in_tokens, 0.0, 2000.0, slack=bound)


@pytest.mark.parametrize("slots", [1, 4])
def test_wrong_estimates_are_put_right_when_the_real_cost_is_known(slots: int) -> None:
    load = surprising_answers(slots)
    log = play(load)
    bound = 2 * largest_cost_over_weight(load) + slots * estimate_error(load)
    assert_no_pair_drifts_apart(log, bound)
    assert_max_min(log, SETTLED_S, 3000.0, slack=bound)


def test_weights_and_costs_work_together() -> None:
    load = Load(
        (
            Party("one", backlog=20, output_tokens=500, output_limit=500, weight=1.0),
            Party("four", backlog=20, output_tokens=50, output_limit=50, weight=4.0),
        ),
        options=TOKENS,
        duration_s=2000.0,
    )
    log = play(load)
    assert_max_min(log, 0.0, 2000.0, slack=2 * largest_cost_over_weight(load))
    served = log.served()
    assert served["four"] / served["one"] == pytest.approx(4.0, rel=0.05)


def test_a_long_prompt_costs_as_well() -> None:
    load = Load(
        (
            Party("document", backlog=10, prompt_tokens=8000, output_limit=100),
            Party("question", backlog=10, prompt_tokens=50, output_limit=100),
        ),
        options=TOKENS,
        duration_s=3000.0,
    )
    log = play(load)
    assert_max_min(log, 0.0, 3000.0, slack=2 * largest_cost_over_weight(load))
    assert_no_pair_drifts_apart(log, bound=2 * largest_cost_over_weight(load))
    starts = [one.user for one in log.dispatches]
    assert starts.count("question") / starts.count("document") == pytest.approx(8200 / 250, rel=0.1)


@pytest.mark.parametrize("options", [ROUND_ROBIN, TOKENS], ids=["requests", "tokens"])
@pytest.mark.parametrize("returns", [1, 3])
def test_a_request_that_comes_back_is_charged_only_once(options: Options, returns: int) -> None:
    load = Load(
        (
            Party("unlucky", backlog=10, output_limit=100, returns=returns),
            Party("lucky", backlog=10, output_limit=100),
        ),
        (Station(slots=2),),
        options=options,
        duration_s=2000.0,
    )
    served = play(load).served(SETTLED_S)
    slack = 3 * largest_cost_over_weight(load)  # two slots, and where the window was cut
    assert served["unlucky"] == pytest.approx(served["lucky"], abs=slack)
