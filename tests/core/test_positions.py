"""Positions: 1 + the entries of the lane that run first if nothing more arrives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .rig import Rig

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}
CLASSES = st.sampled_from(["high", "normal", "normal", "low"])
TALKS = st.sampled_from(["", "", "x", "y"])
entries = st.lists(
    st.tuples(st.sampled_from("abc"), CLASSES, st.integers(0, 9), TALKS), max_size=14
)


def fill(rig: Rig, drawn: list[tuple[str, str, int, str]], offset: int = 0) -> list[str]:
    """Let these wait, and check that each is told the place it would have."""
    names = []
    for number, (user, priority, tokens, talk) in enumerate(drawn, offset):
        name = f"{user}{number}"
        told = rig.wait(
            name, priority=priority, prompt_tokens=tokens, weight=WEIGHTS[user], conversation=talk
        )  # fmt: skip
        names.append(name)
        assert told.position <= number + 1
    return names


@pytest.mark.parametrize("fairness", ["round_robin", "tokens", "fifo"])
@given(
    before=entries,
    runs=st.integers(0, 6),
    later=entries,
    retried=st.booleans(),
    leave_each=st.integers(2, 9),
)
@settings(max_examples=100, deadline=None)
def test_a_place_is_when_the_turn_really_comes(
    fairness: str,
    before: list[tuple[str, str, int, str]],
    runs: int,
    later: list[tuple[str, str, int, str]],
    retried: bool,
    leave_each: int,
) -> None:
    rig = Rig.busy(fairness=fairness, output_weight=0.0)
    fill(rig, before)
    running = "z"
    for _ in range(runs):  # so that counters differ
        started = rig.finish(running)
        if not started:
            return
        running = started[0]
    if retried and running != "z":
        rig.give_rest("n", 0.5)
        rig.come_back(running, exclude=False)
    else:
        retried = False
    names = fill(rig, later, offset=len(before))
    for name in names[1:-1:leave_each]:
        rig.cancel(name)
    waiting = [name for name in named(before + later) if is_waiting(rig, name)]
    places = {name: rig.describe(name).position for name in waiting}
    first = Rig.started(rig.tick(at_s=0.5)) if retried else []
    order = first + rig.run_dry(*(first or [running]))
    assert places == {name: place for place, name in enumerate(order, 1)}


def named(drawn: list[tuple[str, str, int, str]]) -> list[str]:
    return [f"{user}{number}" for number, (user, *_) in enumerate(drawn)]


def is_waiting(rig: Rig, name: str) -> bool:
    found = [a for a in rig.give_inspection(name) if getattr(a, "state", "") == "waiting"]
    return bool(found)


@pytest.mark.parametrize("fairness", ["round_robin", "fifo"])
@given(
    drawn=entries, runs=st.integers(0, 6), last=st.tuples(st.sampled_from("abc"), CLASSES, TALKS)
)
@settings(max_examples=100, deadline=None)
def test_a_newcomer_is_told_the_same_place_as_one_who_asks(
    fairness: str, drawn: list[tuple[str, str, int, str]], runs: int, last: tuple[str, str, str]
) -> None:
    rig = Rig.busy(fairness=fairness)
    fill(rig, drawn)
    running = ["z"]
    for _ in range(min(runs, len(drawn))):
        running = rig.finish(running[0])
    user, priority, talk = last
    told = rig.wait(
        f"{user}-last", priority=priority, weight=WEIGHTS[user], conversation=talk
    )  # fmt: skip
    assert told.position == rig.describe(f"{user}-last").position


def test_a_place_counts_only_its_own_lane() -> None:
    rig = Rig()
    rig.node("n", 1, "m", "other")
    rig.start("z")
    for name in ("a", "b", "c"):
        rig.wait(name, "other")
    assert rig.wait("d").position == 1


def test_a_higher_class_in_the_lane_is_ahead_and_a_lower_is_not() -> None:
    rig = Rig.busy()
    rig.wait("h", priority="high")
    rig.wait("l", priority="low")
    assert rig.wait("n").position == 2
    assert rig.describe("l").position == 3


def test_one_that_has_ended_is_not_described() -> None:
    rig = Rig.busy()
    rig.finish("z")
    assert rig.give_inspection("z") == []


def test_beyond_a_thousand_a_place_is_still_within_the_line() -> None:
    rig = Rig.busy(max_size=5000)
    for number in range(1200):
        told = rig.wait(f"u{number}", user=f"user{number % 7}")
    assert 1 <= told.position <= 1200
    assert rig.wait("new", user="newcomer").position <= 8


@pytest.mark.parametrize("count", [10, 990])
def test_the_places_of_a_long_backlog_follow_who_leaves_and_who_comes(count: int) -> None:
    rig = Rig.busy(max_size=5000)
    names = [f"a{number}" for number in range(count)]
    for name in names:
        rig.wait(name)
    assert [rig.describe(name).position for name in names] == list(range(1, count + 1))
    rig.cancel(names.pop(3))
    rig.wait("a-late")
    names.append("a-late")
    assert [rig.describe(name).position for name in names] == list(range(1, count + 1))
    rig.finish("z")
    assert [rig.describe(name).position for name in names[1:]] == list(range(1, count))


@pytest.mark.parametrize("fairness", ["round_robin", "tokens"])
def test_behind_a_thousand_a_place_in_a_backlog_is_about_right(fairness: str) -> None:
    rig = Rig.busy(max_size=5000, fairness=fairness)
    for number in range(1500):
        rig.wait(f"a{number}")
    rig.cancel("a3")
    told = [rig.describe(f"a{number}").position for number in range(4, 1500)]
    assert told == pytest.approx(list(range(4, 1500)), abs=2)


def test_behind_a_thousand_everything_is_ahead_in_arrival_order() -> None:
    rig = Rig.busy(max_size=2000, fairness="fifo")
    for number in range(1200):
        last = rig.wait(f"a{number}", user=f"u{number % 300}")
    assert last.position == 1200
    assert rig.describe("a1199").position == pytest.approx(1200, rel=0.02)
    assert rig.describe("a600").position == pytest.approx(600, rel=0.02)


@pytest.mark.parametrize("fairness", ["round_robin", "tokens"])
def test_behind_a_thousand_turns_are_counted_by_the_size_of_backlogs(fairness: str) -> None:
    rig = Rig.busy(max_size=3000, fairness=fairness)
    for number in range(1100):
        rig.wait(f"heavy{number}", user="heavy")
    for number in range(200):
        rig.wait(f"a{number}", user=f"u{number % 20}")
    told = rig.wait("mine", user="u0")  # behind ten of its own, each with one of 20 others
    assert told.position == pytest.approx(1 + 10 + 20 * 10, rel=0.1)


def test_of_thousands_of_users_only_some_are_looked_at() -> None:
    rig = Rig.busy(max_size=5000, fairness="round_robin")
    for number in range(3000):
        rig.wait(f"a{number}", user=f"u{number}")
    assert rig.wait("first", user="new").position == pytest.approx(3001, rel=0.02)
    assert rig.wait("second", user="new").position == pytest.approx(3002, rel=0.02)


def test_the_median_answer_prices_the_next_ones_in_token_mode() -> None:
    rig = Rig(fairness="tokens", input_weight=1.0, output_weight=1.0)
    rig.node()
    for number in range(3):
        rig.start(f"past{number}", user="past")
        rig.finish(f"past{number}", output_tokens=10)
    rig.start("z")
    # One of a's at 100 prompt tokens costs 110; b's cost 20 each, so five of b's fit before a2.
    for name, tokens in (("a1", 100), ("a2", 100), *((f"b{n}", 10) for n in range(1, 8))):
        rig.wait(name, prompt_tokens=tokens)
    assert rig.run_dry("z")[:8] == ["a1", "b1", "b2", "b3", "b4", "b5", "b6", "a2"]
