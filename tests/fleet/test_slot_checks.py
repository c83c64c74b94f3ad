"""The judge of slots sees what is too much, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.fleet.journal import Journal, Run, Window
from harness.fleet.slot_checks import (
    Overcommit,
    episodes,
    outside_windows,
    overcommits,
    run_twice,
    too_much,
)

END_S = 100.0


def seen(*runs: Run, **slots: int) -> Journal:
    return Journal(list(runs), [], slots or {"a": 1}, END_S)


def served(id: str, from_s: float, to_s: float, node: str = "a") -> Run:
    return Run(id, node, from_s, to_s, "served")


def hung_up(id: str, from_s: float, to_s: float, node: str = "a") -> Run:
    return Run(id, node, from_s, to_s, "hung_up")


def test_one_after_the_other_is_no_over_commit() -> None:
    assert overcommits(seen(served("1", 0, 1), served("2", 1, 2))) == []


def test_two_at_once_on_one_slot_are_one_and_the_stretch_is_told() -> None:
    found = overcommits(seen(served("1", 0, 3), served("2", 1, 2)))
    assert found == [Overcommit("a", 1, 2, 1)]


def test_the_most_of_a_stretch_is_told_and_stretches_are_kept_apart() -> None:
    runs = [served("1", 0, 9), served("2", 1, 4), served("3", 2, 3), served("4", 5, 6)]
    assert overcommits(seen(*runs)) == [Overcommit("a", 1, 4, 2), Overcommit("a", 5, 6, 1)]


def test_each_node_has_its_own_slots() -> None:
    runs = [served("1", 0, 9), served("2", 1, 4), served("3", 0, 9, "b"), served("4", 1, 2, "b")]
    assert overcommits(seen(*runs, a=2, b=1)) == [Overcommit("b", 1, 2, 1)]


def test_what_still_runs_at_the_end_counts_to_the_end() -> None:
    assert overcommits(seen(Run("1", "a", 0), Run("2", "a", 1))) == [Overcommit("a", 1, END_S, 1)]


def test_windows_excuse_what_is_wholly_inside_them() -> None:
    found = [Overcommit("a", 1, 2, 1)]
    assert outside_windows(found, [Window(0.5, 1.5), Window(1.2, 3)]) == []
    assert outside_windows(found, [Window(0.5, 1.5), Window(1.6, 3)]) == found
    assert outside_windows(found, [Window(1.1, 3)]) == found
    assert outside_windows(found, []) == found


def test_stretches_close_together_on_one_node_are_one_episode() -> None:
    first, again, later = (
        Overcommit("a", 0, 1, 1),
        Overcommit("a", 1.2, 2, 2),
        Overcommit("a", 5, 6, 1),
    )
    elsewhere = Overcommit("b", 1, 2, 1)
    found = episodes([first, again, later, elsewhere], apart_s=0.5)
    assert found == [Overcommit("a", 0, 2, 2), later, elsewhere]
    assert too_much(found, {"a": 2, "b": 2}, longest_s=1.5) == [Overcommit("a", 0, 2, 2)]


def test_even_in_a_window_it_may_be_neither_long_nor_beyond_twice_the_slots() -> None:
    fair, long, many = Overcommit("a", 0, 1, 2), Overcommit("a", 0, 3, 1), Overcommit("a", 0, 1, 3)
    assert too_much([fair, long, many], {"a": 2}, longest_s=2.0) == [long, many]


def test_a_request_that_ran_in_two_places_at_once_is_found() -> None:
    assert run_twice(seen(served("1", 0, 2), hung_up("1", 1, 3, "b"), a=1, b=1)) == ["1"]


def test_a_request_that_ran_to_its_end_twice_is_found() -> None:
    assert run_twice(seen(served("1", 0, 1), served("1", 2, 3))) == ["1"]


def test_a_retry_after_a_hang_up_is_not_twice() -> None:
    assert run_twice(seen(hung_up("1", 0, 1), served("1", 1, 2), served("2", 3, 4))) == []


TIMES = st.integers(0, 30)
RUNS = st.lists(st.tuples(TIMES, st.integers(1, 9), st.sampled_from("ab")), max_size=12)


@given(RUNS, st.integers(1, 3))
def test_it_agrees_with_counting_at_every_moment(drawn: Any, slots: int) -> None:
    runs = [
        served(str(number), from_s, from_s + length, node)
        for number, (from_s, length, node) in enumerate(drawn)
    ]
    found = overcommits(seen(*runs, a=slots, b=slots))
    for node in "ab":
        for moment in range(40):
            at_s = moment + 0.5
            running = sum(run.node == node and run.began_s < at_s < run.ended_s for run in runs)
            told = any(one.node == node and one.from_s < at_s < one.to_s for one in found)
            assert told == (running > slots), (node, at_s)
