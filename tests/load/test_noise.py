"""Equal servers are not told apart more often than by chance; different ones are."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

import pytest

from forebay.load import noise
from forebay.load.comparison import TOO_LOADED, compare
from forebay.load.document import document
from forebay.load.noise import CELLS, margin, stretches
from forebay.load.run import Measured
from forebay.load.statistics import percentile

from .making import ok, plan

if TYPE_CHECKING:
    from forebay.load.document import Document
    from forebay.load.noise import Cells, Statistic

PAIRS = 60
RATE = 20.0


@cache
def queue(seed: str, load: float, count: int = 600) -> list[tuple[float, float]]:
    """One server and a line in front of it (M/M/1): when each came, and how long it took."""
    source = random.Random(seed)
    at_s, free_s, found = 0.0, 0.0, []
    for _ in range(count):
        at_s += source.expovariate(RATE)
        free_s = max(at_s, free_s) + source.expovariate(RATE / load)
        found.append((at_s, free_s - at_s))
    return found


def cells(run: list[tuple[float, float]]) -> Cells:
    span_s = run[-1][0] * 1.000001
    made: Cells = [[] for _ in range(CELLS)]
    for at_s, total_s in run:
        made[int(at_s / span_s * CELLS)].append(total_s)
    return made


@cache
def verdicts(a_load: float, b_load: float, statistic: Statistic, count: int = 600) -> list[str]:
    """What is said of pairs of runs, each with its own luck."""
    return judged(a_load, b_load, statistic, count)


def judged(a_load: float, b_load: float, statistic: Statistic, count: int = 600) -> list[str]:
    """Say it anew, where the rule is another one."""
    found = []
    for pair in range(PAIRS):
        runs = [queue(f"{pair}a", a_load, count), queue(f"{pair}b", b_load, count)]
        a, b = cells(runs[0]), cells(runs[1])
        ranked = [percentile(sorted(s for _, s in run), noise.RANKS[statistic]) for run in runs]
        difference = ranked[1] - ranked[0]
        number = stretches(a, b, statistic)
        if not number:
            found.append("nothing")
        elif abs(difference) <= margin(a, b, statistic, number):
            found.append("same")
        else:
            found.append("worse" if difference > 0 else "better")
    return found


@pytest.mark.parametrize("statistic", ["p50", "p95"])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_equal_servers_differ_in_no_more_than_one_of_ten_pairs(
    load: float, statistic: Statistic
) -> None:
    found = verdicts(load, load, statistic)
    told = found.count("better") + found.count("worse")
    assert told <= PAIRS * 0.10, found  # an interval of 95 %: 5 of 100 are by chance


def test_the_check_above_finds_stretches_that_are_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise, "STRETCH_MEMORIES", 0.01)  # always as many as there may be
    found = judged(0.95, 0.95, "p95")
    assert found.count("better") + found.count("worse") > PAIRS * 0.3


def test_a_quiet_run_may_be_judged_and_a_congested_one_must_be_longer() -> None:
    assert verdicts(0.5, 0.5, "p95").count("nothing") <= PAIRS * 0.05
    short, long = verdicts(0.95, 0.95, "p95"), verdicts(0.8, 0.8, "p95", count=2000)
    assert short.count("nothing") > PAIRS * 0.6
    assert long.count("nothing") < PAIRS * 0.2


@pytest.mark.parametrize("statistic", ["p50", "p95"])
def test_a_server_that_is_really_slower_is_seen(statistic: Statistic) -> None:
    found = verdicts(0.3, 0.5, statistic)
    assert found.count("worse") > PAIRS * 0.9
    assert found.count("better") == 0
    assert verdicts(0.5, 0.8, statistic, count=2000).count("worse") > PAIRS * 0.9


def run(seed: str, load: float) -> Document:
    samples = [ok(at_s, total_s) for at_s, total_s in queue(seed, load)]
    span_s = samples[-1].at_s
    ended_s = max(sample.ended_s or 0.0 for sample in samples)
    return document(Measured(samples, span_s, ended_s, {}, False), plan(), "", "")


def test_what_is_too_loaded_is_said_with_what_to_do() -> None:
    found = compare(run("1", 0.99), run("2", 0.99))
    rows = {row.name: row for row in found.rows}
    assert rows["total p95"].verdict == TOO_LOADED
    assert (rows["total p95"].low, rows["total p95"].high) == (None, None)
    assert rows["goodput, requests"].verdict == "no clear difference"
    assert any("Run longer (--duration)" in text for text in found.warnings)
