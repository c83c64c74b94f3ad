"""When requests are due: before anything is sent, and the same for the same seed."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load import plan as plans
from forebay.load.plan import bounded, constant, longest_prompt, parse_mix, poisson, replayed, sized
from forebay.load.quantities import BadPlan
from forebay.load.run import Prompts
from forebay.load.trace import TraceRow

from .making import plan

if TYPE_CHECKING:
    from pathlib import Path

RATES = st.floats(0.1, 200.0)
SPANS = st.floats(0.1, 20.0)


@settings(deadline=None, max_examples=60)
@given(RATES, SPANS, st.integers(0, 1000))
def test_a_poisson_stream_is_in_order_within_its_span_and_repeatable(
    rate: float, span_s: float, seed: int
) -> None:
    times = list(poisson(rate, span_s, random.Random(seed)))
    assert times == sorted(times)
    assert all(0 <= at_s < span_s for at_s in times)
    assert times == list(poisson(rate, span_s, random.Random(seed)))


@pytest.mark.parametrize("seed", range(20))
def test_a_poisson_stream_has_the_rate_and_the_spread_that_it_should(seed: int) -> None:
    times = list(poisson(50.0, 100.0, random.Random(seed)))
    assert abs(len(times) - 5000) < 5 * 5000**0.5
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert 0.9 < variance**0.5 / mean < 1.1  # 1 for a stream without memory, 0 for an even one


@settings(deadline=None, max_examples=60)
@given(RATES, SPANS)
def test_constant_arrivals_keep_their_gap_and_do_not_drift(rate: float, span_s: float) -> None:
    times = list(constant(rate, span_s))
    assert times[0] == 0.0
    assert all(at_s < span_s for at_s in times)
    assert times[-1] == (len(times) - 1) / rate
    assert len(times) / rate >= span_s


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.1, 100.0))
def test_a_trace_keeps_its_shape_at_any_speed(offsets: list[float], speed: float) -> None:
    rows = [TraceRow(at_s, 5, 7) for at_s in sorted(offsets)]
    found = list(replayed(rows, speed, None))
    assert found[0].at_s == 0.0
    for row, arrival in zip(rows, found, strict=True):
        assert arrival.at_s == pytest.approx((row.at_s - rows[0].at_s) / speed)
        assert (arrival.prompt_tokens, arrival.tokens_max) == (5, 7)
    assert all(arrival.at_s < 10 for arrival in replayed(rows, speed, 10.0))


def test_what_could_not_be_kept_in_memory_is_refused_and_a_limit_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "REQUESTS_MAX", 100)
    with pytest.raises(BadPlan, match=r"more than 100 requests.*--limit"):
        bounded(sized(constant(100.0, 10.0), 1, 1), None)
    assert len(bounded(sized(constant(100.0, 10.0), 1, 1), 100)) == 100


def test_nothing_to_send_and_nothing_to_measure_are_refused() -> None:
    with pytest.raises(BadPlan, match="nothing would be sent"):
        plan(rate=0.001).schedule()
    with pytest.raises(BadPlan, match="--warmup"):
        plan(arrivals="constant", rate=0.1, duration_s=5.0, warmup_s=5.0).schedule()


def test_the_warmup_comes_before_the_measured_time() -> None:
    planned = plan(arrivals="constant", rate=2.0, duration_s=10.0, warmup_s=5.0).schedule()
    assert len(planned) == 30
    assert sum(arrival.at_s >= 5.0 for arrival in planned) == 20


def test_who_asks_does_not_change_when_it_is_asked() -> None:
    several = plan(users=parse_mix("9", "--users", "u"), seed=3)
    assert several.schedule() == plan(seed=3).schedule()
    assert several.schedule() != plan(seed=4).schedule()


def test_a_trace_file_is_read_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n10,100,5\n12,3,9\n")
    made = plan(arrivals="trace", trace=str(file), rate=None, duration_s=None, speed=2.0)
    planned = made.schedule()
    assert [arrival.at_s for arrival in planned] == [0.0, 1.0]
    assert made.span_s(planned) == 2.0  # as if another came a gap later
    assert longest_prompt(planned) == 100


def test_what_a_limit_cuts_short_is_measured_for_as_long_as_it_was_sent() -> None:
    cut = plan(arrivals="constant", rate=200.0, duration_s=30.0, limit=40)
    assert cut.span_s(cut.schedule()) == pytest.approx(40 / 200)
    alone = plan(arrivals="poisson", rate=4.0, duration_s=30.0, limit=1)
    planned = alone.schedule()
    assert alone.span_s(planned) == planned[0].at_s + 0.25
    uncut = plan(arrivals="constant", rate=2.0, duration_s=10.0, limit=99)
    assert uncut.span_s(uncut.schedule()) == 10.0
    just = plan(arrivals="constant", rate=2.0, duration_s=9.75, limit=20)
    assert just.span_s(just.schedule()) == 9.75  # never longer than was asked for


def test_a_trace_of_a_moment_has_no_rate(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n10,100,5\n")
    made = plan(arrivals="trace", trace=str(file), rate=None, duration_s=None)
    assert made.span_s(made.schedule()) == 0.0


def test_no_two_prompts_of_the_longest_run_begin_alike() -> None:
    prompts = Prompts(random.Random(5), 1)
    assert len({prompts.make(1) for _ in range(plans.REQUESTS_MAX)}) == plans.REQUESTS_MAX


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 100))
def test_prompts_have_about_the_wanted_length_and_no_two_begin_alike(
    tokens: int, seed: int
) -> None:
    prompts = Prompts(random.Random(seed), tokens)
    one, other = prompts.make(tokens), prompts.make(tokens)
    assert one[:8] != other[:8]
    assert len(one.split()) == 1 + max(0, tokens - 8)
    assert Prompts(random.Random(seed), tokens).make(tokens) == one
