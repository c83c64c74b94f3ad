"""What 5xx do to a model and to its node, event by event: no clock, no sockets."""

import pytest

from forebay.core import NodeChanged
from forebay.nodes.adapters.report import NodeReport
from forebay.nodes.health import ERRORS_KEPT_S, REST_S, REST_S_MAX, NodeHealth

from .test_health import REPORT, offline, online


def fail(health: NodeHealth, users: str, now_s: float, model: str = "a") -> NodeChanged | None:
    """Have requests of a model end in a 5xx, one for each letter; return what was told last."""
    told = None
    for user in users:
        told = health.request_failed(model, "status", user, now_s) or told
    return told


def test_a_model_whose_last_five_answers_to_two_users_were_5xx_rests_alone() -> None:
    health = online()
    assert fail(health, "xxxy", 1.0) is None
    told = fail(health, "x", 2.0)
    assert told is not None
    assert (told.state, told.failing, told.on_trial, told.slots) == ("online", ("a",), (), 4)
    assert health.next_wake_s() <= 2.0 + REST_S


def test_one_user_alone_never_puts_a_model_to_rest() -> None:
    health = online()
    for turn in range(100):
        assert fail(health, "x", 0.1 * turn) is None
    told = health.changed(10.0)
    assert (told.state, told.failing, told.on_trial) == ("online", (), ())


def test_another_user_counts_only_among_the_last_five() -> None:
    health = online()
    assert fail(health, "xxxxxxxx", 1.0) is None
    assert fail(health, "y", 1.0) is not None
    health = online()
    fail(health, "y", 1.0)
    health.request_answered("a", 1.5, ok=True)
    assert fail(health, "xxxxxxxx", 2.0) is None


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_below_500_between_them_starts_the_count_anew(ok: bool) -> None:
    health = online()
    fail(health, "xyxy", 1.0)
    health.request_answered("a", 2.0, ok=ok)
    assert fail(health, "xyxy", 3.0) is None
    assert fail(health, "x", 3.0) is not None


def test_a_rest_ends_by_itself_and_then_the_model_is_on_trial() -> None:
    health = online()
    fail(health, "xxxxy", 2.0)
    health.probe_succeeded(REPORT, 2.5)
    assert health.next_wake_s() == 2.0 + REST_S
    assert health.woken(2.0 + REST_S - 0.001) is None
    told = health.woken(2.0 + REST_S)
    assert told is not None
    assert (told.failing, told.on_trial) == ((), ("a",))
    assert health.next_wake_s() == health.next_probe_s()


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_below_500_ends_the_trial(ok: bool) -> None:
    health = online()
    fail(health, "xxxxy", 1.0)
    health.woken(1.0 + REST_S)
    told = health.request_answered("a", 9.0, ok=ok)
    assert told is not None
    assert (told.failing, told.on_trial) == ((), ())


def test_a_probe_that_fails_too_puts_it_to_rest_again_for_five_seconds_at_most() -> None:
    health, now_s, rests = online(), 0.0, []
    fail(health, "xyxy", now_s)
    for turn in range(6):
        fail(health, "xy"[turn % 2], now_s)
        ends_s = now_s
        while "a" in health.changed(ends_s).failing:
            ends_s += 0.5
        rests.append(ends_s - now_s)
        now_s = ends_s
    assert rests == [1.0, 2.0, 4.0, REST_S_MAX, REST_S_MAX, REST_S_MAX]
    assert REST_S_MAX == 5.0


def test_who_alone_keeps_failing_after_a_rest_ends_the_suspicion() -> None:
    health, now_s = online(), 0.0
    fail(health, "xyxyx", now_s)
    for _ in range(5):
        now_s += REST_S_MAX
        fail(health, "x", now_s)
    told = health.changed(now_s)
    assert (told.failing, told.on_trial) == ((), ())


def test_failures_that_arrive_during_a_rest_do_not_lengthen_it() -> None:
    health = online()
    fail(health, "xyxyxyxyxyxy", 1.0)
    health.probe_succeeded(REPORT, 1.5)
    told = health.woken(1.0 + REST_S)
    assert told is not None
    assert told.failing == ()


def test_a_trial_that_nobody_comes_for_is_forgotten() -> None:
    health = online()
    fail(health, "xyxyx", 1.0)
    assert health.probe_succeeded(REPORT, 1.0 + ERRORS_KEPT_S - 1.0).on_trial == ("a",)
    assert health.probe_succeeded(REPORT, 1.0 + ERRORS_KEPT_S).on_trial == ()


def test_a_success_of_another_model_does_not_end_a_rest() -> None:
    health = online()
    fail(health, "xyxyx", 2.0)
    health.request_answered("b", 2.5, ok=True)
    assert health.changed(2.5).failing == ("a",)


def test_5xx_never_take_the_node_offline_of_however_many_models() -> None:
    health = online()
    for turn in range(100):
        fail(health, "xyz"[turn % 3], 0.1 * turn, "ab"[turn % 2])
    assert health.state == "online"


def test_a_5xx_asks_for_a_probe_and_does_not_count_beside_it() -> None:
    health = online()
    fail(health, "x", 1.0)
    assert health.next_probe_s() == 1.0
    assert health.probe_failed(1.1) is None
    told = health.probe_failed(2.1)
    assert told is not None
    assert told.state == "offline"


def test_a_5xx_does_not_close_a_half_open_node() -> None:
    health = offline()
    health.probe_succeeded(REPORT, 30.0)
    fail(health, "x", 31.0)
    assert health.phase == "half_open"


def test_a_refusal_of_its_own_says_nothing_of_a_half_open_node() -> None:
    health = offline()
    health.probe_succeeded(REPORT, 30.0)
    health.request_answered("a", 31.0, ok=False)
    assert health.phase == "half_open"


def test_a_model_that_is_no_longer_listed_is_forgotten() -> None:
    health = online()
    fail(health, "xyxyx", 2.0)
    told = health.probe_succeeded(NodeReport(("b",), ("openai",), "ollama"), 2.5)
    assert told.failing == ()


def test_a_model_that_the_node_does_not_list_leaves_no_trace() -> None:
    health = online()
    fail(health, "xyxyxyxyxy", 1.0, "unheard-of")
    assert health.changed(1.0).failing == ()
    assert health.is_steady


def test_a_stream_that_has_begun_ends_the_trial_and_says_nothing_of_the_node() -> None:
    health = online()
    fail(health, "xxxxy", 2.0)
    told = health.woken(2.0 + REST_S)
    assert told is not None
    assert told.on_trial == ("a",)
    health.request_failed("b", "broken", "z", 4.0)
    told = health.stream_began("a", 4.5)
    assert told is not None
    assert (told.failing, told.on_trial) == ((), ())
    assert health.stream_began("a", 4.5) is None
    told = health.request_failed("b", "broken", "z", 5.0)  # the second in a row
    assert told is not None
    assert told.state == "offline"
