"""Priority classes: strict order, weighted shares, and the floor of a backlogged class."""

from collections import Counter

import msgspec
import pytest

from forebay.core.options import Options

from .load import TOKENS, Load, Log, Party, Station, play, roomy

SETTLED_S = 0.5
"""In the first instant whoever comes first finds every slot free, and may take them all."""
EQUAL = dict.fromkeys(("high", "normal", "low"), 1.0)
SHARES = {"high": 8.0, "normal": 4.0, "low": 1.0}


WEIGHTED = roomy(class_order="weighted", fairness="tokens")


def three_classes(options: Options, slots: int = 1) -> Load:
    """Each class backlogged, with prompts of different length: costs are known in advance."""
    parties = tuple(
        Party(
            f"{priority}{number}",
            backlog=10,
            priority=priority,
            prompt_tokens=tokens,
            output_tokens=10,
            output_limit=10,
        )
        for priority, tokens in (("high", 700), ("normal", 200), ("low", 450))
        for number in range(2)
    )
    return Load(parties, (Station(slots=slots),), options, duration_s=1500.0)


def by_class(log: Log) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in log.dispatches:
        if one.at_s > SETTLED_S:
            found[one.priority] += one.cost  # type: ignore[assignment]  # a Counter of floats
    return found


def assert_each_class_has_its_share(log: Log) -> None:
    """Invariant 5, at every dispatch: a backlogged class has its share less one largest cost."""
    cost_max = max(log.load.cost(party) for party in log.load.parties)
    total, given = 0.0, Counter[str]()
    for one in log.dispatches:
        if one.at_s < SETTLED_S:
            continue
        total += one.cost
        given[one.priority] += one.cost  # type: ignore[assignment]  # a Counter of floats
        for priority, weight in SHARES.items():
            share = total * weight / sum(SHARES.values())
            assert given[priority] >= share - cost_max, (
                f"{priority} is owed {share:.0f} and has {given[priority]:.0f} at {one.at_s} s"
            )


@pytest.mark.parametrize("slots", [1, 4])
def test_weighted_classes_share_tokens_eight_to_four_to_one(slots: int) -> None:
    log = play(three_classes(WEIGHTED, slots))
    assert_each_class_has_its_share(log)
    given = by_class(log)
    total = sum(given.values())
    for priority, weight in SHARES.items():
        assert given[priority] / total == pytest.approx(weight / 13.0, rel=0.05)


def test_strict_order_starves_the_lower_classes_and_the_floor_is_seen_to_be_missed() -> None:
    log = play(three_classes(TOKENS))
    with pytest.raises(AssertionError, match="is owed"):
        assert_each_class_has_its_share(log)


def test_a_class_alone_may_use_everything_and_a_returning_one_banks_nothing() -> None:
    load = Load(
        (
            Party("low", backlog=10, priority="low", output_limit=100),
            Party("high", backlog=10, priority="high", output_limit=100, start_s=100.5),
        ),
        options=WEIGHTED,
        duration_s=400.0,
    )
    log = play(load)
    alone = [one for one in log.dispatches if one.at_s < 100.0]
    assert len(alone) == 100
    later = Counter(one.priority for one in log.dispatches if one.at_s > 101.0)
    assert later["high"] / later["low"] == pytest.approx(8.0, rel=0.1)
    first = [one.priority for one in log.dispatches if one.at_s > 101.0][:18]
    assert first.count("low") >= 1  # the newcomer class gets its share, not the time it was away


def test_own_weights_replace_the_defaults() -> None:
    log = play(three_classes(msgspec.structs.replace(WEIGHTED, class_weights=EQUAL)))
    given = by_class(log)
    assert given["high"] / given["low"] == pytest.approx(1.0, rel=0.05)
    assert given["normal"] / given["low"] == pytest.approx(1.0, rel=0.05)


def test_strict_order_never_runs_a_lower_class_while_a_higher_one_waits() -> None:
    waves = tuple(10.0 * turn for turn in range(20) for _ in range(3))
    load = Load(
        (
            Party("urgent", times=waves, priority="high"),
            Party("usual", times=tuple(at_s + 0.25 for at_s in waves)),
            Party("late", backlog=20, priority="low"),
        ),
        duration_s=220.0,
    )
    log = play(load)
    ranks = {"high": 0, "normal": 1, "low": 2}
    for one in log.dispatches:
        waiting = {ranks[priority] for _, priority in one.backlogged}
        assert ranks[one.priority] == min(waiting)
    assert log.served()["urgent"] == len(waves)


def test_in_aging_a_low_request_is_not_kept_waiting_for_ever() -> None:
    options = roomy(aging_s=10.0)
    flood = Party("flood", backlog=3, priority="high")
    log = play(Load((flood, Party("low", times=(0.5,), priority="low")), options=options))
    waits_s = [one.waited_s for one in log.dispatches if one.user == "low"]
    assert waits_s
    assert 20.0 <= waits_s[0] <= 24.0  # two classes up, then its turn between two users
