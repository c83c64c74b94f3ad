"""The figures of a run: nothing lost, nothing counted twice, and each what the page says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load.document import series
from forebay.load.limits import METRICS, broken_limits, parse_limit
from forebay.load.plan import parse_mix
from forebay.load.quantities import BadPlan
from forebay.load.samples import NOT_SENT, UNFINISHED, RequestSample
from forebay.load.summary import CODES_MAX, summarise
from forebay.load.words import headline, warnings

from .making import failed, made, measured, ok, plan, samples

USERS = parse_mix("alice,bob,carol", "--users", "u")
PRIORITIES = parse_mix("high,normal", "--priorities", "p")


@settings(deadline=None, max_examples=60)
@given(samples())
def test_every_request_is_counted_exactly_once(found: list[RequestSample]) -> None:
    summary = summarise(measured(found), plan(users=USERS, priorities=PRIORITIES))
    whole = summary.all
    assert whole.offered == len(found)
    assert whole.offered == whole.ok + whole.errors + whole.not_sent + whole.unfinished
    assert whole.sent == whole.offered - whole.not_sent
    assert whole.errors == sum(whole.by_code.values())
    for groups in (summary.by_priority, summary.by_user):
        for field in ("offered", "ok", "errors", "not_sent", "unfinished", "good", "tokens_out"):
            assert sum(getattr(one, field) for one in groups.values()) == getattr(whole, field)


@settings(deadline=None, max_examples=60)
@given(samples())
def test_the_time_line_holds_every_request_too(found: list[RequestSample]) -> None:
    run = measured(found)
    line = series(found, run.elapsed_s)
    assert len(line.bins) <= 61
    assert sum(one.arrivals for one in line.bins) == len(found)
    assert sum(one.completions for one in line.bins) == sum(sample.is_ok for sample in found)
    assert sum(one.errors for one in line.bins) == sum(sample.is_error for sample in found)
    unfinished = sum(sample.code == UNFINISHED for sample in found)
    assert line.bins[-1].in_flight == unfinished


@settings(deadline=None, max_examples=60)
@given(samples(), st.floats(0, 50), st.floats(0, 50))
def test_goodput_never_grows_when_more_is_asked(
    found: list[RequestSample], slo_s: float, other_s: float
) -> None:
    loose = summarise(measured(found), plan(users=USERS, slo_ttft_s=max(slo_s, other_s)))
    tight = summarise(measured(found), plan(users=USERS, slo_ttft_s=min(slo_s, other_s)))
    assert tight.all.good <= loose.all.good <= loose.all.ok


def test_goodput_counts_what_met_both_objectives() -> None:
    found = [ok(0, 1.0), ok(1, 4.0), ok(2, 10.0), failed(3)]  # first tokens at half the time
    given_plan = plan(slo_ttft_s=3.0, slo_total_s=3.0)
    group = summarise(measured(found, elapsed_s=20.0), given_plan).all
    assert (group.good, group.goodput, group.goodput_tokens) == (1, 1 / 20, 10 / 20)
    assert summarise(measured(found), plan()).all.good == 3


def test_requests_of_a_single_moment_have_no_rate() -> None:
    document = made([ok(0.0, 2.0)], span_s=0.0, elapsed_s=2.0, arrivals="trace")
    assert document.summary.offered_rate is None
    assert "1 requests in 0 ms (a trace, -)" in headline(document)


def test_the_time_line_goes_on_to_the_end_of_a_request_that_hung() -> None:
    hung = failed(1.0, "timeout", status=0, total_s=100.0)
    document = made([ok(0.0, 1.0), hung], elapsed_s=10.0)
    assert document.summary.elapsed_s == 10.0
    assert [one.errors for one in document.series.bins].index(1) * document.series.width_s > 90


def test_the_warmup_is_sent_and_not_measured() -> None:
    found = [ok(0.5, 1.0), failed(1.0), ok(2.0, 1.0)]
    summary = summarise(measured(found, span_s=12.0, elapsed_s=14.0), plan(warmup_s=2.0))
    assert (summary.all.offered, summary.all.errors) == (1, 0)
    assert (summary.span_s, summary.elapsed_s) == (10.0, 12.0)


def test_fairness_while_loaded_counts_what_was_served_by_then() -> None:
    greedy = [ok(i, 1.0, user="greedy") for i in range(9)]
    modest = [ok(i, 100.0, user="modest") for i in range(3)]  # served, but long after
    users = parse_mix("greedy:3,modest", "--users", "u")
    summary = summarise(measured(greedy + modest), plan(users=users))
    assert summary.fairness == pytest.approx(1.0)
    assert summary.fairness_during is not None
    assert summary.fairness_during < 0.9


def test_codes_without_end_do_not_fill_the_report() -> None:
    found = [failed(0, f"code{i}") for i in range(500)]
    group = summarise(measured(found), plan()).all
    assert len(group.by_code) == CODES_MAX + 1
    assert group.by_code["other"] == 500 - CODES_MAX


def test_a_generator_that_was_late_is_said_loudly() -> None:
    late = made([ok(i / 100, 1.0, late_s=0.2 if i < 20 else 0.0) for i in range(200)])
    assert late.summary.is_late
    assert any("COULD NOT KEEP THE SCHEDULE" in text for text in warnings(late))
    in_time = made([ok(i / 100, 1.0, late_s=0.001) for i in range(200)])
    assert warnings(in_time) == []


def test_what_was_not_sent_and_few_answers_are_said() -> None:
    told = "\n".join(warnings(made([ok(0, 1.0), failed(1, NOT_SENT, total_s=None)])))
    assert "NOT SENT: 1 of 2" in told
    assert "Only 1 answers" in told


def test_a_long_run_is_written_in_part_and_summed_up_in_whole() -> None:
    source = random.Random(1)
    times = sorted(source.uniform(0, 10) for _ in range(45_000))
    long = made([ok(at_s, 1.0) for at_s in times])
    assert (long.samples.step, len(long.samples.rows)) == (3, 15_000)
    assert long.summary.all.ok == 45_000


# -- limits


def broken(text: str, *found: RequestSample) -> list[str]:
    names = ("high", "normal", "user-1", "bob")
    summary = summarise(measured(list(found)), plan(users=parse_mix("user-1,bob", "--users", "u")))
    return [str(one) for one in broken_limits([parse_limit(text, names)], summary)]


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("ttft_p95>2s", False),
        ("ttft_p95 >= 2000ms", True),
        ("total_max<4s", False),
        ("total_max<=4s", True),
        ("errors>0", True),
        ("error_rate>50%", False),
        ("error_rate>=33%", True),
        ("ok_rate<0.9", True),
        ("normal:ttft_p50>1s", True),
        ("bob:errors>0", False),
        ("goodput<0.1", False),
        ("fairness<0.5", False),
        ("late_p99>50ms", False),
        ("not_sent>0", False),
    ],
)
def test_a_limit_is_broken_or_not(text: str, is_broken: bool) -> None:
    found = broken(text, ok(0, 4.0), failed(1), ok(2, 4.0, user="bob"))
    assert bool(found) == is_broken, found


def test_a_limit_that_nothing_is_known_about_is_broken() -> None:
    assert broken("wait_p95>1s", ok(0, 1.0, wait_s=None)) == ["wait_p95>1s: not measured"]
    assert broken("high:errors>0", ok(0, 1.0)) != []


def test_every_metric_can_be_asked_for() -> None:
    for metric in METRICS:
        bound = "100h" if _is_time(metric) else "1000000"
        assert broken(f"{metric}>{bound}", ok(0, 1.0)) == []


def _is_time(metric: str) -> bool:
    return metric.startswith(("ttft", "total", "wait", "gap", "stall", "late"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quick", "is not a condition"),
        ("ttft_p59>2s", "Did you mean ttft_p"),
        ("vip:errors>0", "vip is neither a priority nor a user"),
        ("high:fairness<1", "only for the whole run"),
        ("ttft_p95>fast", "is not a duration"),
        ("errors>few", "is not a number"),
        ("errors>nan", "is not a number"),
    ],
)
def test_a_bad_limit_is_explained(text: str, told: str) -> None:
    with pytest.raises(BadPlan, match=r"^--fail-if: ") as caught:
        parse_limit(text, ("high",))
    assert told in str(caught.value)
