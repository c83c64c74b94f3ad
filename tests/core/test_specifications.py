"""The tables of behaviour of the source specifications, and the cases their peers failed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Expire, Reject, Route, ShutDown, Wait, capped_priority, parse_priority

from .rig import Rig

A5_B2 = ["a1", "a2", "a3", "a4", "a5", "b1", "b2"]


# -- order


def test_five_of_a_and_two_of_b_take_turns_while_the_slot_is_busy() -> None:
    rig = Rig.busy()
    for name in A5_B2:
        rig.wait(name)
    assert rig.run_dry("z") == ["a1", "b1", "a2", "b2", "a3", "a4", "a5"]


def test_five_of_a_and_two_of_b_take_turns_when_the_first_runs_at_once() -> None:
    rig = Rig()
    rig.node()
    for name in A5_B2:
        rig.arrive(name)
    assert ["a1", *rig.run_dry("a1")] == ["a1", "b1", "a2", "b2", "a3", "a4", "a5"]


def test_who_sends_long_prompts_gets_fewer_turns_unless_turns_go_by_requests() -> None:
    orders = []
    for options in ({}, {"fairness": "round_robin"}):
        rig = Rig.busy(output_weight=0.0, **options)
        for number in range(1, 4):
            rig.wait(f"a{number}", prompt_tokens=400)
            rig.wait(f"b{number}", prompt_tokens=100)
        orders.append(rig.run_dry("z"))
    assert orders == [["a1", "b1", "b2", "b3", "a2", "a3"], ["a1", "b1", "a2", "b2", "a3", "b3"]]


def test_high_runs_before_normal_before_low_whatever_came_first() -> None:
    rig = Rig.busy()
    for name, priority in (
        ("l", "low"),
        ("n1", "normal"),
        ("h1", "high"),
        ("n2", ""),
        ("h2", "high"),
    ):
        rig.wait(name, priority=priority, user="u")
    assert rig.run_dry("z") == ["h1", "h2", "n1", "n2", "l"]


def test_one_more_level_is_one_more_name() -> None:
    rig = Rig.busy(priorities=("urgent", "high", "normal", "low"))
    for name in ("low", "normal", "high", "urgent"):
        rig.wait(name, priority=name, user="u")
    assert rig.run_dry("z") == ["urgent", "high", "normal", "low"]
    assert parse_priority(" Urgent ", ("urgent", "high", "normal", "low")) == "urgent"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("high", "high"), ("HIGH", "high"), (" High ", "high"), ("normal", "normal"),
        ("NORMAL", "normal"), ("low", "low"), ("", "normal"), ("urgent", "normal"),
        (None, "normal"), ("1e99", "normal"), ("hi gh", "normal"),
    ],
)  # fmt: skip
def test_a_priority_header_is_read_without_case_or_blanks(text: str | None, expected: str) -> None:
    assert parse_priority(text) == expected


def test_a_key_may_cap_the_priority_but_never_raise_it() -> None:
    names = ("high", "normal", "low")
    assert capped_priority("high", "low", names) == "low"
    assert capped_priority("low", "high", names) == "low"


# -- bounds


def test_n_are_accepted_and_the_next_is_rejected() -> None:
    rig = Rig.busy(max_size=3)
    for name in ("a", "b", "c"):
        rig.wait(name)
    refused = rig.refuse("d")
    assert refused.code == "queue_full"
    assert refused.reasons == ("queue is full: all nodes are busy",)
    assert rig.run_dry("z") == ["a", "b", "c"]


@given(
    size=st.integers(1, 5),
    slots=st.integers(1, 3),
    moves=st.lists(st.sampled_from(["arrive", "arrive", "finish", "cancel"]), max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_the_bound_is_exact_under_any_interleaving(size: int, slots: int, moves: list[str]) -> None:
    rig = Rig(max_size=size)
    rig.node(slots=slots)
    running: list[str] = []
    waiting: list[str] = []
    for number, move in enumerate(moves):
        if move == "arrive":
            answer = rig.arrive(f"r{number}")
            full = len(running) == slots
            expected = Route if not full else Wait if len(waiting) < size else Reject
            assert isinstance(answer, expected)
            (waiting if isinstance(answer, Wait) else running).append(answer.id)
            if isinstance(answer, Reject):
                running.remove(answer.id)
        elif move == "finish" and running:
            started = rig.finish(running.pop(0))
            running += started
            waiting = [name for name in waiting if name not in started]
        elif move == "cancel" and waiting:
            rig.cancel(waiting.pop())
        picture = rig.look()
        assert (picture.waiting, picture.running) == (len(waiting), len(running))


@pytest.mark.parametrize("options", [{"max_size": 0}, {"enabled": False}])
def test_a_queue_that_is_off_is_not_full(options: dict[str, object]) -> None:
    rig = Rig.busy(**options)
    assert rig.refuse("a").code == "queue_disabled"
    assert rig.finish("z") == []
    assert rig.start("b").node == "n"


# -- waiting


def test_three_ahead_at_ten_seconds_each_are_an_estimate_of_thirty() -> None:
    rig = Rig.busy()
    rig.finish("z", after_s=10.0)
    rig.start("y")
    for name in ("a", "b", "c"):
        rig.wait(name)
    told = rig.wait("d")
    assert (told.position, told.estimate_s) == (4, 30.0)


def test_an_expired_entry_is_answered_with_a_code_and_when_to_try_again() -> None:
    rig = Rig.busy(wait_s_max=5.0)
    rig.finish("z", after_s=10.0)
    rig.start("y")
    rig.wait("a")
    assert rig.core.next_deadline_s() == 15.0
    assert rig.tick(at_s=14.75) == []
    told = Rig.only(Expire, rig.tick(at_s=15.0))
    assert (told.id, told.code, told.waited_s) == ("a", "queue_timeout", 5.0)
    assert told.retry_after_s is not None
    assert told.retry_after_s > 0.0
    assert rig.finish("y") == []


def test_a_limit_of_zero_expires_at_once() -> None:
    rig = Rig.busy(wait_s_max=0.0)
    actions = rig.give_arrival("a")
    told = Rig.only(Expire, actions)
    assert (told.id, told.code, told.waited_s) == ("a", "queue_timeout", 0.0)
    assert rig.look().waiting == 0


def test_a_caller_who_will_not_wait_runs_now_or_is_refused() -> None:
    rig = Rig()
    rig.node()
    assert rig.start("a", max_wait_s=0.0).node == "n"
    assert rig.refuse("b", max_wait_s=0.0).code == "deadline_unreachable"


def test_a_long_run_after_a_short_wait_is_not_cut() -> None:
    rig = Rig.busy(wait_s_max=5.0)
    rig.wait("a")
    rig.finish("z", after_s=4.0)
    assert rig.tick(at_s=1000.0) == []
    assert rig.describe("a").state == "running"


def test_a_requeue_keeps_its_place_and_its_age() -> None:
    rig = Rig.busy()
    for name in ("a1", "b1", "b2"):
        rig.wait(name)
    assert rig.finish("z", after_s=3.0) == ["a1"]
    rig.give_rest("n", 1.0)
    assert rig.come_back("a1", exclude=False) == []
    assert rig.describe("a1").position == 1
    assert Rig.started(rig.tick(at_s=4.0)) == ["a1"]
    assert rig.routed[-1].waited_s == 4.0
    assert rig.routed[-1].attempt == 2
    assert rig.run_dry("a1") == ["b1", "b2"]


def test_shutdown_answers_everyone_and_refuses_newcomers() -> None:
    rig = Rig.busy()
    rig.wait("a")
    rig.wait("b")
    rig.wait("c", priority="low")
    rig.wait("j", job=True)
    answers = rig.give(ShutDown())
    assert {(a.id, a.code) for a in answers if isinstance(a, Reject)} == {
        (name, "shutting_down") for name in "abcj"
    }
    assert len(answers) == 4
    assert rig.refuse("d").code == "shutting_down"
    assert rig.finish("z") == []


def test_a_stream_is_not_queued_where_the_operator_says_so() -> None:
    rig = Rig.busy(queue_streams=False)
    assert rig.refuse("a", stream=True).code == "stream_not_queued"
    rig.wait("b")
    rig.finish("z")
    rig.finish("b")
    assert rig.start("c", stream=True).node == "n"


# -- nodes


def test_a_head_whose_model_has_no_free_node_blocks_nobody() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "other")
    rig.start("x")
    rig.wait("a", priority="high")
    rig.start("y", "other")
    rig.wait("b", "other", priority="low")
    assert rig.finish("y") == ["b"]


def test_an_unknown_model_is_refused_at_once_even_when_the_queue_is_full() -> None:
    rig = Rig.busy(max_size=1)
    rig.wait("a")
    assert rig.refuse("b", "unheard-of").code == "model_not_found"
    assert rig.refuse("c", family="ollama").code == "route_not_supported"


def test_a_node_that_is_loading_is_never_selected() -> None:
    rig = Rig()
    rig.node("n1", state="loading")
    assert rig.wait("a").reason == "loading"
    assert Rig.started(rig.node("n2", gpu_load=1.0)) == ["a"]
    rig.finish("a")
    assert rig.start("b").node == "n2"
    rig.wait("c")
    rig.node("n1", state="loading", slots=5)
    assert rig.describe("c").state == "waiting"


def test_all_nodes_offline_refuses_newcomers_while_those_in_line_wait_on() -> None:
    rig = Rig.busy(wait_s_max=5.0)
    rig.wait("a")
    rig.node(state="offline", away_s=60.0)
    rig.finish("z")
    assert rig.refuse("b").code == "no_node"
    assert rig.describe("a").reason == "offline"
    told = Rig.only(Expire, rig.tick(at_s=5.0))
    assert (told.id, told.code) == ("a", "no_node")


def test_a_lowered_slot_count_drains_and_kills_nothing() -> None:
    rig = Rig()
    rig.node(slots=3)
    for name in ("x", "y", "z"):
        rig.start(name)
    rig.wait("a")
    assert rig.node(slots=1) == []
    assert rig.finish("x") == []
    assert rig.finish("y") == []
    assert rig.finish("z") == ["a"]


def test_one_cancelled_in_the_instant_of_the_grant_passes_the_slot_on() -> None:
    rig = Rig.busy()
    for name in ("a", "b"):
        rig.wait(name)
    assert rig.finish("z") == ["a"]
    assert Rig.started(rig.cancel("a")) == ["b"]
