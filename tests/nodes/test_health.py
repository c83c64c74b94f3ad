"""The health of a node, event by event: no clock, no sockets."""

from itertools import pairwise

import pytest

from forebay.core import NodeChanged
from forebay.nodes.health import (
    CONFIRM_PROBE_S,
    ERRORS_KEPT_S,
    FLAP_PROBE_S_MAX,
    LOADING_PROBE_S,
    OFFLINE_PROBE_S,
    PROBE_GAP_S,
    PROBE_S,
    REST_S,
    REST_S_MAX,
    TRANSITIONS,
    NodeHealth,
)
from forebay.nodes.report import Report

REPORT = Report(
    models=("a", "b"), families=("openai", "anthropic"), kind="llama-cpp", slots=4, gpu_load=0.5
)


def online(now_s: float = 0.0, slots: int = 0) -> NodeHealth:
    health = NodeHealth("gpu1", slots=slots, now_s=now_s)
    health.probe_succeeded(REPORT, now_s)
    return health


def offline(now_s: float = 0.0) -> NodeHealth:
    health = online(now_s)
    health.probe_failed(now_s)
    health.probe_failed(now_s)
    assert health.state == "offline"
    return health


def test_a_new_node_is_offline_and_probed_at_once() -> None:
    health = NodeHealth("gpu1", models=("m",), now_s=7.0)
    assert health.next_probe_s() == 7.0
    assert health.changed(7.0) == NodeChanged("gpu1", slots=1, models=("m",), state="offline")


def test_the_first_good_probe_brings_all_slots_at_once() -> None:
    health = NodeHealth("gpu1", now_s=0.0)
    assert health.probe_succeeded(REPORT, 1.0) == NodeChanged(
        "gpu1",
        slots=4,
        models=("a", "b"),
        families=("openai", "anthropic"),
        state="online",
        gpu_load=0.5,
    )
    assert health.next_probe_s() == 1.0 + PROBE_S


def test_every_good_probe_is_told_even_when_nothing_has_changed() -> None:
    health = online()
    assert health.probe_succeeded(REPORT, 10.0) == health.probe_succeeded(REPORT, 20.0)


def test_the_operator_knows_better_how_many_slots_and_which_models() -> None:
    health = NodeHealth("gpu1", slots=2, models=("pinned",))
    told = health.probe_succeeded(REPORT, 0.0)
    assert (told.slots, told.models) == (2, ("pinned",))


def test_a_node_that_tells_no_slots_has_one() -> None:
    told = NodeHealth("gpu1").probe_succeeded(Report(("a",), ("openai",), "vllm"), 0.0)
    assert told.slots == 1


def test_one_failed_probe_changes_nothing_but_is_looked_into_soon() -> None:
    health = online()
    health.probe_started(10.0)
    assert health.probe_failed(11.0) is None
    assert health.state == "online"
    assert health.next_probe_s() == 11.0 + PROBE_GAP_S


def test_two_failed_probes_in_a_row_take_it_offline_and_its_models_stay_known() -> None:
    health = online()
    health.probe_failed(10.0)
    told = health.probe_failed(11.0)
    assert told is not None
    assert (told.state, told.models) == ("offline", ("a", "b"))


def test_failures_with_a_success_between_them_do_not_add_up() -> None:
    health = online()
    for turn in range(5):
        health.probe_failed(20.0 * turn)
        health.probe_succeeded(REPORT, 20.0 * turn + 1)
        health.request_failed("a", "connect", "u", 20.0 * turn + 2)
        health.request_answered("a", 20.0 * turn + 3, ok=True)
    assert health.state == "online"


def test_a_failed_request_asks_for_a_probe_at_once() -> None:
    health = online()
    assert health.request_failed("a", "timeout", "u", 5.0) is None
    assert health.next_probe_s() == 5.0


def test_a_failed_request_and_a_failed_probe_are_two_failures() -> None:
    health = online()
    health.request_failed("a", "connect", "u", 5.0)
    told = health.probe_failed(5.1)
    assert told is not None
    assert told.state == "offline"


def test_two_requests_that_broke_together_take_it_offline_and_the_rest_is_no_news() -> None:
    health = online()
    told = [health.request_failed("a", "broken", "u", 5.0) for _ in range(4)]
    assert [event is not None for event in told] == [False, True, False, False]
    assert 5.0 < health.next_probe_s() <= 5.0 + OFFLINE_PROBE_S


def test_many_failing_requests_do_not_ask_for_many_probes() -> None:
    health = online()
    health.probe_started(5.0)
    health.request_failed("a", "status", "u", 5.01)
    assert health.next_probe_s() == 5.0 + PROBE_GAP_S


def test_back_after_one_good_probe_but_with_a_single_slot() -> None:
    health = offline()
    told = health.probe_succeeded(REPORT, 30.0)
    assert (told.state, told.slots) == ("online", 1)
    assert health.next_probe_s() == 30.0 + CONFIRM_PROBE_S


def test_the_single_slot_holds_even_against_the_operator() -> None:
    health = online(slots=8)
    health.probe_failed(1.0)
    health.probe_failed(2.0)
    assert health.probe_succeeded(REPORT, 30.0).slots == 1


def test_a_request_that_succeeds_gives_the_slots_back() -> None:
    health = offline()
    health.probe_succeeded(REPORT, 30.0)
    told = health.request_answered("a", 31.0, ok=True)
    assert told is not None
    assert told.slots == 4


def test_a_second_good_probe_gives_the_slots_back() -> None:
    health = offline()
    health.probe_succeeded(REPORT, 30.0)
    assert health.probe_succeeded(REPORT, 32.0).slots == 4
    assert health.next_probe_s() == 32.0 + PROBE_S


def test_one_failure_while_half_open_is_enough() -> None:
    health = offline()
    health.probe_succeeded(REPORT, 30.0)
    told = health.request_failed("a", "connect", "u", 31.0)
    assert told is not None
    assert told.state == "offline"


def test_an_answer_that_ends_after_its_node_went_away_does_not_bring_it_back() -> None:
    health = offline()
    assert health.request_answered("a", 1.0, ok=True) is None
    assert health.state == "offline"


def test_probes_of_a_dead_node_back_off_to_the_usual_interval() -> None:
    health = offline(0.0)
    now_s, waits = 0.0, []
    for _ in range(7):
        waits.append(health.next_probe_s() - now_s)
        now_s = health.next_probe_s()
        health.probe_started(now_s)
        health.probe_failed(now_s)
    longest = [1.0, 2.0, 4.0, 8.0, PROBE_S, PROBE_S, PROBE_S]
    assert all(0.75 * most <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len(set(waits[-3:])) == 3, "evenly spaced probes could miss it for ever"


def comebacks_of_a_node_that_flaps(period_s: float, lasts_s: float) -> list[float]:
    """Drive a health by its own wishes against a node that is up and down in turn."""
    health, back_at_s = online(0.0), []
    while (now_s := health.next_probe_s()) < lasts_s:
        was_offline = health.state == "offline"
        health.probe_started(now_s)
        if int(now_s / period_s) % 2 == 0:
            health.probe_succeeded(REPORT, now_s)
            if was_offline:
                back_at_s.append(now_s)
            # Requests flow in as soon as it is back, and break when it goes down again.
            down_s = (int(now_s / period_s) + 1) * period_s
            for _ in range(2):
                health.request_failed("a", "broken", "u", down_s)
        else:
            health.probe_failed(now_s)
    return back_at_s


def test_a_node_that_flaps_every_2_s_is_tried_ever_less_often() -> None:
    back_at_s = comebacks_of_a_node_that_flaps(2.0, 1800.0)
    gaps = [after - before for before, after in pairwise(back_at_s)]
    assert len([at_s for at_s in back_at_s if at_s < 120.0]) <= 8
    assert gaps[-1] >= 0.75 * FLAP_PROBE_S_MAX
    assert max(gaps) <= 6 * FLAP_PROBE_S_MAX, "it is never given up"


def test_a_node_that_stays_up_is_forgiven_its_flaps() -> None:
    health = offline(0.0)
    for now_s in (10.0, 30.0):
        health.probe_succeeded(REPORT, now_s)
        health.request_failed("a", "connect", "u", now_s + 1.0)
    assert health.next_probe_s() >= 31.0 + 0.75 * 4 * OFFLINE_PROBE_S
    health.probe_succeeded(REPORT, 40.0)
    health.probe_succeeded(REPORT, 42.0)
    for _ in range(2):
        health.request_failed("a", "connect", "u", 200.0)
    assert health.next_probe_s() <= 200.0 + OFFLINE_PROBE_S


def test_a_node_that_loads_is_asked_again_soon_and_its_models_stay_known() -> None:
    health = online()
    loading = Report(models=(), families=("openai",), kind="llama-cpp", state="loading")
    told = health.probe_succeeded(loading, 10.0)
    assert (told.state, told.models) == ("loading", ("a", "b"))
    assert health.next_probe_s() == 10.0 + LOADING_PROBE_S


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
    told = health.probe_succeeded(Report(("b",), ("openai",), "ollama"), 2.5)
    assert told.failing == ()


def test_a_model_that_the_node_does_not_list_leaves_no_trace() -> None:
    health = online()
    fail(health, "xyxyxyxyxy", 1.0, "unheard-of")
    assert health.changed(1.0).failing == ()
    assert health.is_steady


def test_draining_lets_nothing_start_and_survives_good_probes() -> None:
    health = online()
    told = health.drained(1.0)
    assert told is not None
    assert told.state == "draining"
    assert health.probe_succeeded(REPORT, 10.0).state == "draining"


def test_a_draining_node_that_dies_is_offline_and_comes_back_draining() -> None:
    health = offline()
    health.drained(1.0)
    assert health.state == "offline"
    assert health.probe_succeeded(REPORT, 30.0).state == "draining"


def test_resuming_uses_it_again_and_looks_at_it_first() -> None:
    health = online()
    health.drained(1.0)
    told = health.resumed(5.0)
    assert told is not None
    assert told.state == "online"
    assert health.next_probe_s() == 5.0


def test_draining_twice_is_no_news() -> None:
    health = online()
    health.drained(1.0)
    assert health.drained(2.0) is None


def test_an_ordinary_success_is_no_news() -> None:
    health = online()
    assert health.request_answered("a", 1.0, ok=True) is None


def test_a_probe_on_its_way_is_not_started_again() -> None:
    health = NodeHealth("gpu1", now_s=0.0)
    health.probe_started(0.0)
    assert health.next_probe_s() == PROBE_S


def test_the_table_knows_every_move() -> None:
    phases = {phase for phase, _ in TRANSITIONS}
    causes = {cause for _, cause in TRANSITIONS}
    assert len(TRANSITIONS) == len(phases) * len(causes)
    assert set(TRANSITIONS.values()) <= phases
    back = {phase for (phase, _), target in TRANSITIONS.items() if target == "online"}
    assert back == {"new", "online", "half_open"}, "the way back leads through half open"
