"""A line that is too long: who would wait for over twice the limit is refused at once."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Options, Reject, Route, Wait

from .rig import Rig
from .swap_rig import LOAD_S

SERVICE_S, LIMIT_S = 5.0, 60.0
PLACES = int(2 * LIMIT_S / SERVICE_S)
"""As many may wait in one slot before the next would wait for over twice the limit."""
BODY = 7 << 32 | 1234


def line(measured: int = 20, **options: Any) -> Rig:
    """Return a busy slot in whose lane so many have waited, and nobody does now."""
    rig = Rig(**{"wait_s_max": LIMIT_S, "max_size": 1000, "fairness": "fifo", **options})
    rig.node()
    rig.start("first")
    running = "first"
    for number in range(measured):
        rig.wait(f"w{number}")
        (running,) = rig.finish(running, after_s=SERVICE_S)
    return rig


def fill(rig: Rig, count: int = 2 * PLACES, **more: Any) -> list[Route | Wait | Reject]:
    """Let so many come at once, each with a user of its own."""
    before = rig.look().waiting
    names = (f"x{before}-{number}" for number in range(count))
    return [rig.arrive(name, user=name, **more) for name in names]


def waiting(answers: list[Route | Wait | Reject]) -> int:
    return sum(isinstance(answer, Wait) for answer in answers)


@pytest.mark.parametrize("fairness", ["fifo", "round_robin", "tokens"])
def test_who_would_wait_over_twice_the_limit_is_refused_and_told_how_long(fairness: str) -> None:
    rig = line(fairness=fairness)
    answers = fill(rig)
    assert waiting(answers) == pytest.approx(PLACES, abs=2)
    last = [answer for answer in answers if isinstance(answer, Wait)][-1]
    assert last.p50_s is not None
    assert last.p50_s <= 2 * LIMIT_S
    refused = answers[-1]
    assert isinstance(refused, Reject)
    assert refused.code == "queue_full"
    assert refused.reasons == ("queue is full: would wait about 2 min, the limit is 60 s",)
    assert refused.estimate_s is not None
    assert 2 * LIMIT_S < refused.estimate_s < 2.3 * LIMIT_S
    assert rig.look().totals.rejected["queue_full"] == len(answers) - waiting(answers)


def test_only_what_stands_before_it_makes_a_line_too_long_for_a_newcomer() -> None:
    rig = line(fairness="round_robin")
    own = [rig.arrive(f"a{n}") for n in range(2 * PLACES)]
    assert isinstance(own[-1], Reject)
    rig.wait("b")
    rig.wait("a", priority="high")


def test_it_needs_twenty_measured_waits_of_the_lane() -> None:
    assert waiting(fill(line(measured=19))) == 2 * PLACES
    assert waiting(fill(line(measured=20))) < 2 * PLACES
    rig = line()
    rig.node("other", 1, "n")
    rig.start("n", "n")
    rig.finish("n", after_s=SERVICE_S)
    rig.start("n", "n")
    assert waiting(fill(rig, model="n")) == 2 * PLACES


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {"job": True}),
        ({}, {"patient": True}),
        ({"wait_s_max": inf}, {}),
        ({"refuses_long_lines": False}, {}),
    ],
    ids=["jobs", "prompts", "no limit", "not wanted"],
)
def test_it_is_not_for(options: dict[str, Any], more: dict[str, Any]) -> None:
    assert waiting(fill(line(**options), **more)) == 2 * PLACES


def test_a_callers_own_shorter_limit_is_a_deadline() -> None:
    rig = line()
    fill(rig)
    refused = rig.refuse("a", max_wait_s=30.0)
    assert refused.code == "deadline_unreachable"
    assert rig.refuse("b", max_wait_s=2 * LIMIT_S).code == "queue_full"


def test_it_keeps_its_number_and_comes_in_when_its_turn_is_near() -> None:
    rig = line()
    answers = fill(rig)
    refused = rig.refuse("a", digest=BODY)
    assert refused.estimate_s is not None
    rig.refuse("b", digest=BODY + 1)
    running = "w19"
    for _ in range(3):
        (running,) = rig.finish(running, after_s=SERVICE_S)
    again = rig.wait("a1", digest=BODY)
    assert again.position == waiting(answers) - 3 + 1
    assert again.p50_s is not None
    assert again.p50_s <= 2 * LIMIT_S


def test_nobody_makes_room_for_one_that_would_wait_too_long() -> None:
    rig = line(max_size=PLACES + 10, wait_s_max=LIMIT_S, fairness="fifo")
    rig.wait("low", priority="low")
    count = waiting(fill(rig, PLACES + 20))
    assert count == pytest.approx(PLACES, abs=2)
    assert rig.look().by_priority["low"] == 1


def swapping(loaded: str) -> Rig:
    """Return a node that served few requests a load until now, and has that model in memory."""
    rig = Rig(
        wait_s_max=LIMIT_S, max_size=1000, fairness="fifo", swap_share=1.0, swap_wait_s=0.0,
        priorities=("normal",),
    )  # fmt: skip
    rig.node("n", 1, "m", "cold", loaded=("m",), load_s=LOAD_S)
    rig.start("m-0")
    running, number = "m-0", 0
    while number < 60 or not running.startswith(loaded):
        number += 1
        rig.arrive(f"m-{number}", "m")
        rig.arrive(f"cold-{number}", "cold")
        (running,) = rig.finish(running, after_s=LOAD_S + 1.0)
    return rig


@pytest.mark.parametrize("loaded", ["m", "cold"])
def test_no_load_and_no_other_model_makes_a_line_too_long(loaded: str) -> None:
    """Most of the time that a start takes is for loads and the other model."""
    rig = swapping(loaded)
    answers = fill(rig, 40, model="m")
    assert waiting(answers) == 40
    assert isinstance(answers[-1], Wait)
    assert answers[-1].p50_s is not None
    assert answers[-1].p50_s > 2 * LIMIT_S
    assert (waiting(fill(rig, 200, model="m")) < 200) is (loaded == "m")


@given(
    service_s=st.floats(0.5, 20.0),
    slots=st.integers(1, 4),
    services=st.floats(3.0, 10.0),
    users=st.lists(st.sampled_from("abcdef"), min_size=50, max_size=120),
    priorities=st.lists(st.sampled_from(["high", "normal", "low"]), min_size=120, max_size=120),
)
@settings(max_examples=30, deadline=None)
def test_nobody_is_promised_more_than_twice_the_limit_and_nobody_refused_for_less(
    service_s: float, slots: int, services: float, users: list[str], priorities: list[str]
) -> None:
    limit_s = services * service_s
    rig = Rig(wait_s_max=limit_s, max_size=10_000)
    rig.node(slots=slots)
    running = [rig.start(f"z{n}").id for n in range(slots)]
    for number in range(25):
        rig.arrive(f"w{number}")
        running += rig.finish(running.pop(0), after_s=service_s / slots)
    for number, (user, priority) in enumerate(zip(users, priorities, strict=False)):
        answer = rig.arrive(f"{user}{number}", priority=priority)
        if isinstance(answer, Wait):
            assert answer.p50_s is not None
            assert answer.p50_s <= 2 * limit_s * 1.0001
        else:
            assert isinstance(answer, Reject)
            assert answer.estimate_s is not None
            assert answer.estimate_s > 2 * limit_s


def test_it_is_on_unless_the_operator_says_otherwise() -> None:
    assert Options().refuses_long_lines
