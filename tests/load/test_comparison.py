"""Two runs side by side: what is better, what is worse, and what is only noise."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from forebay.load.comparison import compare, differences
from forebay.load.document import VERSION, encode, load
from forebay.load.page import compare_page, run_page
from forebay.load.plan import parse_mix
from forebay.load.quantities import BadPlan

from .making import failed, made, ok, plan

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.load.comparison import Row
    from forebay.load.document import Document


def run(seed: int, factor: float = 1.0, failures: int = 0, **more: Any) -> Document:
    source = random.Random(seed)
    found = [ok(i / 40, factor * source.uniform(0.5, 1.5)) for i in range(400)]
    for i in range(failures):
        found[i * 400 // failures] = failed(i * 10 / failures)
    return made(found, **more)


def rows(a: Document, b: Document) -> dict[str, Row]:
    return {row.name: row for row in compare(a, b).rows}


@pytest.mark.parametrize("seed", range(4))
def test_two_runs_of_the_same_are_not_told_apart(seed: int) -> None:
    found = rows(run(seed), run(seed + 100))
    clear = [row for row in found.values() if row.verdict in ("better", "worse")]
    assert len(clear) <= 2  # of a dozen figures, with intervals of 95 %


def test_a_slower_server_is_worse_and_a_quicker_one_better() -> None:
    slower, quicker = rows(run(1), run(2, 1.5)), rows(run(2, 1.5), run(1))
    for name in ("time to first token p50", "total p50", "total p95", "queue wait p95"):
        assert slower[name].verdict == "worse"
        low = slower[name].low
        assert low is not None
        assert low > 0
        assert slower[name].ratio == pytest.approx(1.5, rel=0.1)
        assert quicker[name].verdict == "better"


def test_for_successes_and_goodput_more_is_better() -> None:
    found, back = rows(run(1), run(1, failures=200)), rows(run(1, failures=200), run(1))
    for name in ("succeeded", "met the objectives", "goodput, requests", "goodput, tokens"):
        assert found[name].verdict == "worse"
        assert back[name].verdict == "better"


def test_the_interval_holds_the_difference_that_was_measured() -> None:
    for row in rows(run(1), run(2, 1.3, failures=40)).values():
        if row.low is not None and row.high is not None:
            assert row.a is not None
            assert row.b is not None
            assert row.low - 1e-9 <= row.b - row.a <= row.high + 1e-9


def test_one_bad_stretch_is_noise_however_many_requests_it_hit() -> None:
    calm = made([ok(i / 40, 1.0 + i % 7 / 100) for i in range(400)])
    upset = made([ok(i / 40, (9.0 if i < 35 else 1.0) + i % 7 / 100) for i in range(400)])
    row = rows(calm, upset)["total p95"]
    assert row.ratio is not None
    assert row.ratio > 8  # nearly a tenth of all requests, but a single moment
    assert row.verdict == "no clear difference"


def test_a_comparison_is_repeatable() -> None:
    assert compare(run(1), run(2, 1.1)) == compare(run(1), run(2, 1.1))


def test_with_too_few_answers_nothing_is_claimed() -> None:
    few = made([ok(i, 1.0) for i in range(5)])
    many = compare(few, run(1))
    assert {row.verdict for row in many.rows if row.unit == "s"} == {"unknown"}
    assert any("A has 5 good answers" in text for text in many.warnings)


def test_figures_that_neither_run_has_are_left_out() -> None:
    plain = made([ok(i / 40, 1.0, ttft_s=None, wait_s=None) for i in range(400)])
    assert not any("queue wait" in name for name in rows(plain, plain))


def test_runs_that_asked_for_different_things_are_not_comparable() -> None:
    mix = parse_mix("alice:1,bob:3", "--users", "u")
    found = differences(plan(), plan(model="other", rate=9.0, users=mix, stream=False))
    assert found == [
        "rate: 5.0 against 9.0",
        "users: user-1:1 against alice:1,bob:3",
        "model: m against other",
        "stream: True against False",
    ]
    assert differences(plan(), plan(url="http://elsewhere", seed=7)) == []


def test_what_makes_a_run_doubtful_is_said() -> None:
    late = made([ok(i / 40, 1.0, late_s=1.0) for i in range(400)], seed=9)
    told = "\n".join(compare(run(1), late).warnings)
    assert "B was sent late by the load generator" in told
    assert "The seeds differ" in told


# -- the files


def test_a_document_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    before = run(1, failures=3, messages={"queue_full": "full"})
    (tmp_path / "a.json").write_text(encode(before))
    assert load(tmp_path / "a.json") == before
    assert encode(before) == encode(run(1, failures=3, messages={"queue_full": "full"}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a run of forebay bench"),
        ("[1]", "not a run of forebay bench"),
        ('{"kind": "forebay.bench", "version": 99}', "of version 99"),
        ('{"kind": "forebay.bench", "version": 1}', "is broken: "),
    ],
)
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert VERSION == 1
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadPlan) as caught:
        load(tmp_path / "a.json")
    assert told in str(caught.value)
    with pytest.raises(BadPlan, match="No such file"):
        load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("summary.elapsed_s", 0, "summary.elapsed_s must be above 0"),
        ("summary.span_s", -1.0, "summary.span_s must be a number between 0"),
        ("summary.span_s", 1e300, "summary.span_s must be a number between 0"),
        ("summary.span_s", None, "`$.summary.span_s`"),
        ("summary.all.offered", -3, "summary.all.offered must be"),
        ("summary.all.tokens_out", 10**400, "summary.all.tokens_out must be"),
        ("settings.users.weights", [], "settings.users needs names"),
        ("settings.users.weights", [0], "settings.users needs names"),
        ("settings.warmup_s", -5, "settings.warmup_s must be"),
        ("samples.step", 0, "samples.step must be 1"),
        ("samples.columns", ["at_s"], "samples.columns must be at_s, user,"),
        ("samples.rows", [[-1.0, "u", "p"]], "samples.rows[0][0] must be"),
        ("series.width_s", 0, "series.width_s must be above 0"),
    ],
)
def test_a_run_with_numbers_that_cannot_be_is_refused_with_the_name_of_the_field(
    tmp_path: Path, field: str, value: object, told: str
) -> None:
    document = json.loads(encode(run(1)))
    *path, last = field.split(".")
    inner = document
    for name in path:
        inner = inner[name]
    inner[last] = value
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(BadPlan) as caught:
        load(tmp_path / "a.json")
    assert told in str(caught.value)


def test_a_run_of_a_single_moment_and_one_of_large_numbers_can_be_compared(tmp_path: Path) -> None:
    moment = made([ok(0.0, 1.0)] * 30, span_s=0.0, elapsed_s=1.0, seed=-7)
    large = made([ok(1e29, 1e29)] * 30, span_s=1e29, elapsed_s=1e29)
    for one in (moment, large):
        (tmp_path / "a.json").write_text(encode(one))
        read = load(tmp_path / "a.json")
        assert compare_page(read, run(1), compare(read, run(1)))
        assert run_page(read)


def test_a_long_run_is_written_in_part_and_summed_up_in_whole() -> None:
    source = random.Random(1)
    times = sorted(source.uniform(0, 10) for _ in range(45_000))
    long = made([ok(at_s, 1.0) for at_s in times])
    assert (long.samples.step, len(long.samples.rows)) == (3, 15_000)
    assert long.summary.all.ok == 45_000
    row = rows(long, long)["goodput, requests"]
    assert row.low is not None
    assert row.high is not None
    assert -300 < row.low < 0 < row.high < 300  # each row stands for those left out: of 4,090/s
