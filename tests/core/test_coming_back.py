"""Who found no room keeps its arrival number: once, for a while, and nobody else's."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from forebay.core import Options, OptionsChanged, Reject, retry_delay_s

from .rig import Rig

FAIRNESS = ("round_robin", "tokens", "fifo")
BODY = 7 << 32 | 1234
"""What the same request has whenever it comes."""


def full(waiting: int = 2, **options: Any) -> Rig:
    """Return a line that is full: `z` runs, and as many of other users wait."""
    rig = Rig.busy(**{"max_size": waiting, **options})
    for number in range(waiting):
        rig.wait(f"w{number}", user=f"w{number}")
    return rig


@pytest.mark.parametrize("fairness", FAIRNESS)
def test_who_comes_back_stands_before_those_who_came_after_it(fairness: str) -> None:
    rig = full(fairness=fairness)
    rig.refuse("a", digest=BODY)
    rig.finish("z")
    rig.wait("b")  # takes the place that came free
    rig.finish("w0")
    assert rig.wait("a2", digest=BODY).position == 1
    assert rig.run_dry("w1") == ["a2", "b"]


@pytest.mark.parametrize("fairness", FAIRNESS)
@pytest.mark.parametrize(("first", "second"), [(None, None), (BODY, None), (BODY, BODY + 1)])
def test_another_body_or_none_is_a_newcomer(
    fairness: str, first: int | None, second: int | None
) -> None:
    rig = full(fairness=fairness)
    rig.refuse("a", digest=first)
    rig.finish("z")
    rig.wait("b")
    rig.finish("w0")
    assert rig.wait("a2", digest=second).position == 2
    assert rig.run_dry("w1") == ["b", "a2"]


def test_among_its_users_own_it_goes_by_arrival_and_overtakes_no_earlier_one() -> None:
    rig = full(waiting=3)
    rig.finish("z")
    rig.wait("a1")
    rig.refuse("a2", digest=BODY)
    rig.finish("w0")
    rig.wait("a3")
    rig.finish("w1")
    rig.wait("a4", digest=BODY)
    assert rig.run_dry("w2") == ["a1", "a4", "a3"]


def test_its_wait_begins_anew() -> None:
    rig = full(wait_s_max=50.0)
    rig.refuse("a", digest=BODY)
    rig.finish("z", after_s=3.0)
    rig.wait("a2", digest=BODY)
    assert rig.describe("a2").waited_s == 0.0
    assert not [one for one in rig.tick(at_s=52.9) if getattr(one, "id", "") == "a2"]
    assert [one.id for one in rig.tick(at_s=53.0) if hasattr(one, "id")] == ["a2"]


def test_while_it_is_still_full_the_same_number_is_kept() -> None:
    rig = full()
    rig.refuse("a", digest=BODY)
    for attempt in range(3):
        rig.refuse(f"b{attempt}", user=f"b{attempt}")
        rig.refuse(f"a{attempt}", digest=BODY)
    rig.finish("z")
    rig.wait("c")
    rig.finish("w0")
    rig.wait("a9", digest=BODY)
    assert rig.run_dry("w1") == ["a9", "c"]


def test_a_displaced_waiter_keeps_its_number() -> None:
    rig = Rig.busy(max_size=2, when_full="displace")
    rig.wait("a1")
    rig.wait("a2", digest=BODY)
    told = [one for one in rig.give_arrival("b1") if isinstance(one, Reject)]
    assert [one.id for one in told] == ["a2"]
    rig.finish("z")
    rig.wait("a3")
    rig.cancel("b1")
    rig.wait("a4", digest=BODY)
    assert rig.run_dry("a1") == ["a4", "a3"]


def test_who_gave_up_waiting_and_sends_it_again_keeps_its_number() -> None:
    rig = full(waiting=3, fairness="fifo")
    rig.finish("z")
    rig.wait("a1", digest=BODY)
    rig.finish("w0")
    rig.wait("n")
    rig.cancel("a1")
    assert rig.wait("a2", digest=BODY).position == 2
    assert rig.run_dry("w1") == ["w2", "a2", "n"]


def test_what_ran_when_its_client_left_is_new() -> None:
    rig = full(waiting=3, fairness="fifo")
    rig.finish("z")
    rig.wait("a1", digest=BODY)
    rig.run_dry("w0")
    rig.start("x", digest=BODY, user="a")
    rig.cancel("x")
    rig.start("y")
    rig.wait("n")
    rig.wait("a2", digest=BODY)
    assert rig.run_dry("y") == ["n", "a2"]


def is_newcomer(rig: Rig, **comes: Any) -> bool:
    """Say whether one that comes back stands behind `n1`, who came after it was refused."""
    rig.finish("z")
    rig.wait("n1")
    rig.finish("w0")
    rig.wait("back", **comes)
    return rig.run_dry("w1") == ["n1", "back"]


@pytest.mark.parametrize(
    ("change", "newcomer"),
    [
        ({}, False),
        ({"user": "b"}, True),
        ({"key": "other"}, True),
        ({"model": "m2"}, True),
        ({"priority": "urgent"}, False),  # there is no such class: both are normal
        ({"digest": BODY + (1 << 32)}, True),
    ],
)
def test_its_number_goes_to_the_same_user_key_model_class_and_body(
    change: dict[str, Any], newcomer: bool
) -> None:
    rig = full(fairness="fifo")
    rig.node("n", 1, "m", "m2")
    rig.refuse("a", key="k", digest=BODY)
    comes: dict[str, Any] = {"user": "a", "key": "k", "digest": BODY} | change
    assert is_newcomer(rig, **comes) == newcomer


def test_another_class_is_a_newcomer_and_leaves_the_number_to_its_owner() -> None:
    rig = full(waiting=3, fairness="fifo")
    rig.refuse("a", priority="low", digest=BODY)
    rig.finish("z")
    rig.wait("n1", priority="low")
    rig.finish("w0")
    rig.wait("high", user="a", digest=BODY, priority="normal")
    rig.finish("w1")
    rig.wait("back", user="a", digest=BODY, priority="low")
    assert rig.run_dry("w2") == ["high", "back", "n1"]


def test_it_counts_once() -> None:
    rig = full(waiting=3, fairness="fifo")
    rig.refuse("a", digest=BODY)
    rig.finish("z")
    rig.wait("n1")
    rig.finish("w0")
    rig.wait("a1", digest=BODY)
    rig.finish("w1")
    rig.wait("a2", digest=BODY)
    assert rig.run_dry("w2") == ["a1", "n1", "a2"]


def test_it_is_taken_also_by_one_that_starts_at_once() -> None:
    rig = full(fairness="fifo")
    rig.refuse("a", digest=BODY)
    rig.run_dry("z")
    rig.start("a1", digest=BODY)
    rig.wait("n1")
    rig.wait("a2", digest=BODY)
    assert rig.run_dry("a1") == ["n1", "a2"]


def test_a_refusal_for_another_reason_neither_keeps_nor_takes_one() -> None:
    rig = full(fairness="fifo")
    rig.refuse("a", digest=BODY)
    rig.finish("z")
    assert rig.refuse("a1", digest=BODY, max_wait_s=0.0).code == "deadline_unreachable"
    assert rig.refuse("a1", digest=BODY + 1, max_wait_s=0.0).code == "deadline_unreachable"
    rig.wait("n1")
    rig.finish("w0")
    rig.wait("a2", digest=BODY)
    assert rig.run_dry("w1") == ["a2", "n1"]
    assert len(rig.core._book.returns.kept) == 0


@pytest.mark.parametrize("service_s", [None, 10.0], ids=["unmeasured", "measured"])
@pytest.mark.parametrize("late", [False, True])
def test_it_is_kept_twice_as_long_as_the_longest_delay_that_may_be_told(
    service_s: float | None, late: bool
) -> None:
    rig = Rig(max_size=2, fairness="fifo", wait_s_max=1e6)
    rig.node()
    if service_s is not None:
        rig.start("y")
        rig.finish("y", after_s=service_s)
    rig.start("z")
    rig.wait("w0", user="w0")
    rig.wait("w1", user="w1")
    told = rig.refuse("a", digest=BODY)
    assert (told.retry_after_s is None) == (service_s is None)
    lasts_s = 2 * ceil(retry_delay_s(told.retry_after_s, 1.0))
    rig.now_s += lasts_s - (0.0 if late else 0.001)
    assert is_newcomer(rig, user="a", digest=BODY) == late


def measured(waiting: int = 3, *, of: str = "", **options: Any) -> Rig:
    """Return a line that is full, of services known to take 10 s; all are of one user if named."""
    rig = Rig(**{"max_size": waiting, "wait_s_max": 1e6, **options})
    rig.node()
    for number in range(20):
        rig.start(f"y{number}")
        rig.finish(f"y{number}", after_s=10.0)
    rig.start("z")
    for number in range(waiting):
        rig.wait(f"w{number}", user=of or f"w{number}")
    return rig


@pytest.mark.parametrize("fairness", FAIRNESS)
def test_who_is_refused_again_is_told_what_is_left_but_at_least_half_a_newcomers_wait(
    fairness: str,
) -> None:
    rig = measured(fairness=fairness)
    told = [rig.refuse("a", digest=BODY)]
    for number, running in enumerate(("z", "w0", "w1", "w2")):
        rig.finish(running, after_s=10.0)
        rig.wait(f"n{number}", user=f"n{number}")  # takes the place that came free
        told.append(rig.refuse("a", digest=BODY))
    told_s = [one.retry_after_s for one in told]
    assert told_s == pytest.approx([40.0, 30.0, 20.0, 20.0, 20.0], abs=2.0)


@pytest.mark.parametrize("fairness", FAIRNESS)
def test_an_own_limit_is_compared_with_what_is_left_until_the_old_turn(fairness: str) -> None:
    rig = measured(fairness=fairness)
    rig.refuse("a", digest=BODY)
    for number, running in enumerate(("z", "w0", "w1")):
        rig.finish(running, after_s=10.0)
        if number < 2:
            rig.wait(f"n{number}", user=f"n{number}")
    assert rig.refuse("b", max_wait_s=5.0).code == "deadline_unreachable"
    assert rig.refuse("a1", digest=BODY, max_wait_s=5.0).code == "deadline_unreachable"
    told = rig.wait("a2", digest=BODY, max_wait_s=15.0)
    assert told.p50_s == pytest.approx(10.0, abs=2.0)
    assert rig.run_dry("w2")[0] == "a2"


@pytest.mark.parametrize("fairness", ["round_robin", "tokens"])
def test_who_has_nothing_waiting_is_told_to_come_back_sooner_than_who_has_much(
    fairness: str,
) -> None:
    rig = measured(waiting=10, of="b", fairness=fairness)
    assert rig.refuse("a").retry_after_s == pytest.approx(20.0, abs=5.0)
    assert rig.refuse("b").retry_after_s == pytest.approx(110.0, abs=5.0)


def test_a_caller_with_fallbacks_may_come_back_to_another_of_its_models() -> None:
    rig = Rig(max_size=1, fairness="fifo")
    rig.node("n", 1, "m")
    rig.node("o", 1, "m2")
    rig.start("z")
    rig.start("y", "m2")
    rig.wait("w")
    rig.refuse("a", fallbacks=("m2",), digest=BODY)
    rig.cancel("w")
    later = rig.wait("b")
    rig.cancel("b")
    rig.node("n", 1, "m", state="offline")
    assert rig.wait("a1", fallbacks=("m2",), digest=BODY).seq < later.seq
    rig.finish("y")
    assert rig.routed[-1].model == "m2"


def test_who_is_kept_by_its_owner_needs_none() -> None:
    rig = full()
    rig.refuse("a", patient=True, digest=BODY)
    assert not rig.core._book.returns.kept


def test_one_user_has_a_tenth_of_them_and_all_have_as_many_as_may_wait() -> None:
    rig = full(waiting=20)
    kept = rig.core._book.returns.kept
    for number in range(5):
        rig.refuse(f"a{number}", digest=number)
    assert [who.digest for who in kept] == [0, 1]
    for number in range(30):
        rig.refuse(f"b{number}", user=f"b{number}", digest=BODY)
    assert len(kept) == 20
    rig.refuse("a9", digest=0)
    assert len(kept) == 20, "who is in a full table stays in it"
    rig.now_s += 6.0
    rig.refuse("c", digest=BODY)
    assert [who.user for who in kept] == ["c"], "those that are out of date make room"


def test_a_user_always_has_one_and_a_lower_bound_drains() -> None:
    rig = full(waiting=20)
    kept = rig.core._book.returns.kept
    for number in range(20):
        rig.refuse(f"b{number}", user=f"b{number}", digest=BODY)
    rig.give(OptionsChanged(Options(max_size=3)))
    rig.refuse("c", digest=BODY)
    rig.refuse("b", user="b0", digest=BODY)
    assert len(kept) == 19
    rig.now_s += 6.0
    for number in range(2):
        rig.refuse(f"d{number}", digest=number)
    assert [who.digest for who in kept] == [0]
