"""Trials of one more slot: how soon room is found, and what a trial costs where there is none."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from bench.slots.__main__ import ALIKE, PLAIN, plain, requests_to_find, throughputs
from bench.slots.engine import Engine, Run, flat, queueing, refusing, thrashing
from forebay.nodes.slot_limit import SlotLimit

if TYPE_CHECKING:
    from collections.abc import Callable


def in_trial(run: Run, limit: SlotLimit, engine: Engine) -> int:
    """Serve until more is tried than was settled for; return the number that is tried."""
    while not (limit.in_trial and limit.listens):
        run.serve(engine, 1)
    return limit.slots


@pytest.mark.parametrize("kind", ["sharp", "queueing", "telling", "refusing"])
def test_more_room_is_found_within_60_requests(kind: str) -> None:
    """In the median over engines that run up to 12, whenever they get two to four times as much."""
    rng, kinds = Random(kind), [name for name, _ in PLAIN]
    took: list[int] = []
    while len(took) < 30:
        number = kinds.index(kind) + len(kinds) * rng.randrange(7)
        before, after = plain(number), plain(number, 2.0 ** rng.uniform(1.0, 2.0))
        run = Run(SlotLimit(), rng.randrange(10**6), before.load)
        run.serve(before.engine, 300 + rng.randrange(200))
        ended = run.serve(after.engine, 400)
        took.append(requests_to_find([one.slots for one in ended], throughputs(after)))
    assert median(took) <= 60


@pytest.mark.parametrize("make", [flat, queueing, thrashing])
def test_what_gains_all_is_seen_before_as_many_answers_as_are_tried(
    make: Callable[[int], Engine],
) -> None:
    limit = SlotLimit()
    run = Run(limit, 1, ALIKE)
    run.serve(make(16), 300)
    tried = in_trial(run, limit, make(16))
    answers = 0
    while limit.slots == tried:
        answers += len(run.serve(make(64), 1))
    assert limit.slots > tried
    assert answers < tried


@pytest.mark.parametrize(
    ("first_bytes_s", "slots"),
    [([], 9), ([0.13] * 2, 9), ([0.13] * 3, 13), ([0.25] * 3, 9), ([0.9], 8)],
)
def test_streams_as_fast_as_ever_are_no_room_before_those_that_were_sent_have_begun(
    first_bytes_s: list[float], slots: int
) -> None:
    """In an engine with a queue of its own, those that run are as fast as ever."""
    limit = SlotLimit()
    assert in_trial(Run(limit, 1, ALIKE), limit, flat(8)) == 9
    for first_byte_s in first_bytes_s:
        limit.note_first_byte("llama", 404, first_byte_s, 1e6, 1e6)
    for written, now_s in ((0, 1e6), (10_000, 1e6 + 1.0)):
        streams = [("llama", str(number), float(written), now_s) for number in range(9)]
        limit.note_streams(streams, now_s)
    assert limit.slots == slots


@pytest.mark.parametrize("make", [flat, queueing, refusing])
@pytest.mark.parametrize("knee", [4, 8, 16])
def test_one_first_byte_in_fifty_comes_in_a_trial_of_no_use(
    make: Callable[[int], Engine], knee: int
) -> None:
    limit = SlotLimit()
    run = Run(limit, 1, ALIKE)
    run.serve(make(knee), 200)
    settled = limit.slots
    sent, more, before = len(run.started), 0, False
    while len(run.started) < sent + 2000:
        run.serve(make(knee), 1)
        more += limit.slots > settled and not before
        before = limit.slots > settled
    assert 10 <= more <= 2000 / 50


def test_how_soon_more_is_tried_after_a_refusal_does_not_depend_on_how_fast_answers_come() -> None:
    trials = []
    for load in (ALIKE, replace(ALIKE, base_s=0.001, prompt_token_s=1e-6, output_token_s=1e-4)):
        limit = SlotLimit()
        run = Run(limit, 1, load)
        slots = [one.slots for one in run.serve(refusing(8), 1000)]
        assert max(slots[100:]) == 8  # nobody ends while more is tried: it is refused at once
        trials.append(limit.changes)
    assert trials[1] == pytest.approx(trials[0], rel=0.2)


def test_a_trial_that_is_refused_is_no_news_but_fewer_than_before_are() -> None:
    """Else the log has a line for each, every few seconds."""
    limit = SlotLimit()
    run = Run(limit, 1, ALIKE)
    run.serve(refusing(16), 100)
    assert limit.slots == 16
    assert in_trial(run, limit, flat(64)) == 18
    news = []
    for _ in range(3):
        limit.note_refused(1e6)
        news.append((limit.slots, limit.in_trial))
    assert news == [(17, True), (16, True), (15, False)]


@pytest.mark.parametrize("knee", [6, 10])
def test_a_search_that_goes_on_does_not_go_back_at_once_to_what_did_clearly_worse(
    knee: int,
) -> None:
    """The first one has found it out, on an engine whose throughput falls as it had risen."""
    beyond = 0
    for seed in range(20):
        run = Run(SlotLimit(), seed, ALIKE, clients=2 * knee)
        engine = Engine(lambda n: max(1.0, (n / knee) ** 2.5))
        settled = run.serve(engine, 400)[60:]
        beyond += sum(one.slots >= 1.4 * knee for one in settled)
    assert beyond <= 10
