"""Whose requests fail by themselves goes last on that node, until one of them is answered."""

from __future__ import annotations

import pytest

from forebay.core import Finished
from forebay.core.nodes import STRIKES_S, STRUCK_MAX

from .rig import Rig


def struck(rig: Rig, user: str = "a", strikes: int = 3) -> Rig:
    """Let so many requests of a user fail on the node `n`."""
    for number in range(strikes):
        rig.start(f"{user}{number}", user=user)
        rig.give(Finished(f"{user}{number}", ok=False, strike=True))
    return rig


def order(rig: Rig, *names: str) -> list[str]:
    """Return in which order these start that wait for the one slot of the node."""
    rig.start("x")
    for name in names:
        rig.wait(name)
    return rig.run_dry("x")


def with_node() -> Rig:
    rig = Rig(fairness="fifo")
    rig.node("n")
    return rig


@pytest.mark.parametrize(
    ("strikes", "expected"), [(2, ["a", "b", "c", "bb"]), (3, ["b", "c", "bb", "a"])]
)
def test_with_three_strikes_a_user_goes_after_all_others(strikes: int, expected: list[str]) -> None:
    assert order(struck(with_node(), strikes=strikes), "a", "b", "c", "bb") == expected


def test_who_has_struck_out_starts_where_nobody_else_waits() -> None:
    rig = struck(with_node())
    rig.start("a")
    rig.wait("aa")
    assert rig.finish("a", ok=False) == ["aa"]


def test_one_answer_ends_it_and_so_do_ten_minutes() -> None:
    rig = struck(with_node())
    rig.start("a")
    rig.finish("a")
    assert order(rig, "a1", "b1") == ["a1", "b1"]
    rig = struck(with_node())
    rig.now_s += STRIKES_S
    assert order(rig, "a1", "b1") == ["a1", "b1"]


def test_strikes_are_remembered_of_so_many_users() -> None:
    rig = struck(with_node())
    for number in range(STRUCK_MAX):
        struck(rig, f"user{number}", strikes=1)
    assert order(rig, "a", "b") == ["a", "b"]
