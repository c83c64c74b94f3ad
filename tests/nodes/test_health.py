"""The health of a node, event by event: no clock, no sockets."""

from itertools import pairwise

import pytest

from forebay.core import NodeChanged
from forebay.nodes.adapters.report import NodeReport
from forebay.nodes.health import (
    CONFIRM_PROBE_S,
    FLAP_PROBE_S_MAX,
    LOADING_PROBE_S,
    OFFLINE_PROBE_S,
    PROBE_GAP_S,
    PROBE_S,
    TRANSITIONS,
    FailureKind,
    NodeHealth,
)

REPORT = NodeReport(
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
    assert health.changed(9.0) == NodeChanged(
        "gpu1",
        slots=1,
        models=("m",),
        state="offline",
        away_s=2.0,
        is_new=True,
    )


def test_the_first_good_probe_brings_all_slots_at_once() -> None:
    health = NodeHealth("gpu1", now_s=0.0)
    assert health.probe_succeeded(REPORT, 1.0) == NodeChanged(
        "gpu1",
        slots=4,
        models=("a", "b"),
        families=("openai", "anthropic"),
        state="online",
        gpu_load=0.5,
        slots_kind="named",
    )
    assert health.next_probe_s() == 1.0 + PROBE_S


def test_every_good_probe_is_told_even_when_nothing_has_changed() -> None:
    health = online()
    assert health.probe_succeeded(REPORT, 10.0) == health.probe_succeeded(REPORT, 20.0)


def test_the_operator_knows_better_how_many_slots_and_which_models() -> None:
    health = NodeHealth("gpu1", slots=2, models=("pinned",))
    told = health.probe_succeeded(REPORT, 0.0)
    assert (told.slots, told.models) == (2, ("pinned",))


@pytest.mark.parametrize(("kind", "slots"), [("ollama", 1), ("vllm", 8), ("lm-studio", 4)])
def test_a_node_that_tells_no_slots_begins_with_those_of_its_kind(kind: str, slots: int) -> None:
    health = NodeHealth("gpu1")
    told = health.probe_succeeded(NodeReport(("a",), ("openai",), kind), 0.0)
    assert (told.slots, told.slots_kind) == (slots, "found")
    health.slots_found = 6
    assert health.changed(1.0).slots == 6, "what has been found is where another leader begins"


def test_a_node_that_comes_back_gets_one_request_whatever_was_found() -> None:
    health = NodeHealth("gpu1")
    health.probe_succeeded(NodeReport(("a",), ("openai",), "vllm"), 0.0)
    for _ in range(2):
        health.probe_failed(1.0)
    told = health.probe_succeeded(NodeReport(("a",), ("openai",), "vllm"), 2.0)
    assert (told.slots, told.slots_kind) == (1, "fixed")
    again = health.request_answered("a", 3.0, ok=True)
    assert again is not None
    assert (again.slots, again.slots_kind) == (8, "found")


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


def test_requests_that_break_within_a_second_are_one_failure_but_refused_connects_are_not() -> None:
    health = online()
    for at_s in (5.0, 5.5, 5.9):
        assert health.request_failed("a", "broken", "u", at_s) is None
    assert health.next_probe_s() == 5.0
    told = [health.request_failed("a", "broken", "u", 6.0) for _ in range(3)]
    assert [event is not None for event in told] == [True, False, False]
    assert 6.0 < health.next_probe_s() <= 6.0 + OFFLINE_PROBE_S
    health = online()
    told = [health.request_failed("a", "connect", "u", 5.0) for _ in range(2)]
    assert [event is not None for event in told] == [False, True]


def test_good_probes_between_requests_that_hang_do_not_make_up_for_them() -> None:
    health = online()
    for at_s, is_news in ((100.0, False), (300.0, True)):
        assert (health.request_failed("a", "timeout", "u", at_s) is not None) == is_news
        health.probe_succeeded(REPORT, at_s + 10.0)
    health.request_answered("a", 320.0, ok=True)
    assert health.request_failed("a", "timeout", "u", 400.0) is None


@pytest.mark.parametrize(
    ("kind", "answered_s", "is_excused"),
    [("timeout", 5.0, True), ("broken", 5.0, True), ("garbage", 5.0, True), ("timeout", 4.9, False),
     ("connect", 5.0, False), ("status", 5.0, False)],
)  # fmt: skip
def test_a_request_has_itself_to_blame_where_another_was_answered_meanwhile(
    kind: FailureKind, answered_s: float, is_excused: bool
) -> None:
    here, elsewhere = online(), online()
    here.answered_s = elsewhere.answered_others_s = answered_s
    for health in (here, elsewhere):
        assert health.excuses(kind, started_s=5.0) == is_excused
        assert health.request_failed("a", kind, "u", 6.0, excused=True) is None
        assert health.request_failed("a", kind, "u", 9.0, excused=True) is None
        assert health.next_probe_s() == 6.0


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
    loading = NodeReport(models=(), families=("openai",), kind="llama-cpp", state="loading")
    told = health.probe_succeeded(loading, 10.0)
    assert (told.state, told.models) == ("loading", ("a", "b"))
    assert health.next_probe_s() == 10.0 + LOADING_PROBE_S


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


# -- for how long it has been away


def test_a_node_is_away_since_its_first_failure_after_its_last_good_answer() -> None:
    health = online()
    health.request_failed("a", "connect", "u", 3.0)
    health.request_answered("a", 4.0, ok=True)
    health.request_failed("a", "connect", "u", 5.0)
    told = health.probe_failed(6.0)
    assert told is not None
    assert (told.state, told.away_s, told.is_new) == ("offline", 1.0, False)
    assert health.changed(16.0).away_s == 11.0
    assert health.probe_failed(17.0) is None  # that time passes is no news
    assert health.probe_succeeded(REPORT, 18.0).away_s == 0.0


def test_a_node_that_drains_is_away_and_so_is_one_whose_guard_is_silent() -> None:
    health = online()
    health.drained(10.0)
    health.drained(12.0)
    assert health.changed(15.0).away_s == 5.0
    health.fell_silent(20.0)
    assert health.changed(22.0).away_s == 12.0
    health.resumed(23.0)
    assert (health.changed(24.0).state, health.changed(24.0).away_s) == ("offline", 4.0)


def test_a_node_is_new_until_it_has_answered_and_away_since_it_was_added() -> None:
    health = NodeHealth("gpu1", now_s=10.0)
    health.probe_failed(11.0)
    told = health.probe_failed(12.0)
    assert told is None or told.is_new
    assert (health.changed(20.0).is_new, health.changed(20.0).away_s) == (True, 10.0)
    assert not health.probe_succeeded(REPORT, 21.0).is_new
    health.probe_failed(22.0)
    health.probe_failed(23.0)
    assert (health.changed(23.0).is_new, health.changed(23.0).away_s) == (False, 1.0)


def test_other_settings_for_the_same_server_do_not_make_it_new() -> None:
    before, after = offline(5.0), NodeHealth("gpu1", now_s=9.0)
    after.take_over(before, same_server=True)
    assert (after.changed(9.0).is_new, after.changed(9.0).away_s) == (False, 4.0)
    other = NodeHealth("gpu1", now_s=9.0)
    other.take_over(before, same_server=False)
    assert (other.changed(9.0).is_new, other.changed(9.0).away_s) == (True, 0.0)


def test_how_long_a_load_takes_is_told_from_the_loads_before() -> None:
    loading = NodeReport(models=(), families=("openai",), kind="llama-cpp", state="loading")
    health = online()
    assert health.probe_succeeded(loading, 100.0).ready_in_s is None
    health.probe_succeeded(loading, 101.0)
    health.probe_succeeded(REPORT, 108.0)
    assert health.probe_succeeded(loading, 200.0).ready_in_s == 8.0
    assert health.probe_succeeded(loading, 205.0).ready_in_s == 3.0
    assert health.probe_succeeded(loading, 211.0).ready_in_s == 0.0
    health.probe_succeeded(REPORT, 212.0)
    assert health.probe_succeeded(loading, 300.0).ready_in_s == 10.0  # of 8 and 12


def test_a_request_that_finds_it_loading_is_no_failure_and_puts_the_next_probe_off() -> None:
    health = online()
    told = health.found_loading(5.0)
    assert told is not None
    assert (told.state, told.slots, told.models) == ("loading", 4, ("a", "b"))
    assert health.next_probe_s() == 5.0 + LOADING_PROBE_S
    assert health.found_loading(5.5) is None
    assert health.probe_succeeded(REPORT, 6.0).state == "online"
    assert offline().found_loading(9.0) is None
