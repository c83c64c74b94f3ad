"""Bad ends by code: over a minute, over fifteen, and when the last was."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.dashboard.history import MINUTE, SAMPLES_MAX
from forebay.dashboard.recent_errors import SHOWN_MAX, RecentErrors, RecentFailures
from forebay.gateway.dashboard import remedy_of
from forebay.gateway.errors.codes import CODES


def test_a_problem_is_shown_with_its_remedy_until_fifteen_minutes_have_passed() -> None:
    problems = RecentErrors(remedy_of)
    problems.add({"queue_full": 3}, 10.0)
    (shown,) = problems.shown(12.5)
    assert (shown.code, shown.kind) == ("queue_full", "rejection")
    assert (shown.last_minute, shown.last_15_minutes, shown.total) == (3, 3, 3)
    assert shown.seconds_ago == 2.5
    assert "queue.max_size" in shown.remedy.ja
    for second in range(MINUTE):
        problems.add({"queue_full": 3}, 11.0 + second)
    (shown,) = problems.shown(80.0)
    assert (shown.last_minute, shown.last_15_minutes) == (0, 3)
    for second in range(SAMPLES_MAX - MINUTE):
        problems.add({"queue_full": 3}, 71.0 + second)
    assert problems.shown(1000.0) == []


def test_what_had_been_counted_before_is_no_problem_of_now() -> None:
    problems = RecentErrors(remedy_of)
    problems.begin({"queue_full": 3, "node_failed": 1})
    problems.add({"queue_full": 4, "node_failed": 1}, 10.0)
    (shown,) = problems.shown(12.5)
    assert (shown.code, shown.last_minute, shown.total) == ("queue_full", 1, 4)
    assert problems.rejected() == 4


def test_the_failures_of_a_node_are_forgotten_after_fifteen_minutes() -> None:
    failures = RecentFailures()
    failures.add({("gpu1", "connect"): 2, ("gpu2", "lost"): 1})
    failures.add({("gpu1", "connect"): 3, ("gpu2", "lost"): 1})
    assert failures.by_node() == {"gpu1": {"connect": 3}, "gpu2": {"lost": 1}}
    for _ in range(SAMPLES_MAX - 1):
        failures.add({("gpu1", "connect"): 3})
    assert failures.by_node() == {"gpu1": {"connect": 1}}
    failures.add({("gpu1", "connect"): 1})  # taken out, and added again
    assert failures.by_node() == {}


def test_the_most_recent_come_first_and_the_list_is_bounded() -> None:
    problems = RecentErrors(remedy_of)
    totals: dict[str, int] = {}
    for second, code in enumerate(CODES):
        totals = {**totals, code: 1}
        problems.add(totals, float(second))
    shown = problems.shown(100.0)
    assert len(shown) == SHOWN_MAX
    assert shown[0].code == list(CODES)[-1]
    assert [one.seconds_ago for one in shown] == sorted(one.seconds_ago for one in shown)


@given(st.lists(st.sampled_from(["queue_full", "node_failed", "unauthorized"]), max_size=200))
def test_windows_add_up_however_codes_come(codes: list[str]) -> None:
    problems, totals = RecentErrors(remedy_of), Counter[str]()
    for second, code in enumerate(codes):
        totals[code] += 1
        problems.add(dict(totals), float(second))
    minute = Counter(codes[-MINUTE:])
    for shown in problems.shown(float(len(codes))):
        assert shown.last_minute == minute[shown.code]
        assert shown.last_15_minutes == shown.total == totals[shown.code]
    assert problems.rejected() == totals["queue_full"]


def test_every_code_has_a_remedy_in_both_languages() -> None:
    for code in (*CODES, "passed_through"):
        words = remedy_of(code).words
        assert words.en
        assert words.en.isascii()
        assert not words.ja.isascii()
        assert "`" not in words.en + words.ja


def test_who_has_to_act_follows_from_the_code() -> None:
    kinds = {code: remedy_of(code).kind for code in CODES}
    assert kinds["queue_full"] == kinds["no_node"] == kinds["queue_timeout"] == "rejection"
    assert kinds["node_failed"] == kinds["run_timeout"] == kinds["store_unavailable"] == "error"
    assert kinds["invalid_request"] == kinds["cancelled"] == kinds["unauthorized"] == "caller"
    assert remedy_of("passed_through").kind == "caller"
