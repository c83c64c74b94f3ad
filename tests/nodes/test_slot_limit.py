"""How many slots are found, from how simulated engines answer; all in virtual time."""

from __future__ import annotations

import random
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.slots.__main__ import ALIKE, figures_of
from bench.slots.engine import (
    MEASURED,
    NUMBERS,
    Engine,
    Figures,
    Run,
    best_number,
    figures,
    flat,
    queueing,
    refusing,
    soft,
    thrashing,
)
from forebay.nodes.slot_limit import SLOTS_MAX, SlotLimit
from forebay.nodes.slot_rounds import Costs, Round, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.nodes.stream_pace import Stream

SEEDS = range(4)


@cache
def best_of(make: Callable[[int], Engine], knee: int) -> int:
    """Return the best fixed number: about the knee, where there is one."""
    near = [number for number in NUMBERS if knee <= 2 * number <= 4 * knee]
    return best_number(make(knee), seed=99, numbers=NUMBERS if make is soft else near)


@cache
def at_best(make: Callable[[int], Engine], knee: int, seed: int) -> Figures:
    """Return what the best fixed number does."""
    engine, best = make(knee), best_of(make, knee)
    run = Run(best, seed)
    run.serve(engine, 2 * best)
    return figures(run.serve(engine, MEASURED))


def settled(
    make: Callable[[int], Engine], knee: int, start: int, seed: int, rounds: int = 6
) -> tuple[Figures, Figures, int]:
    """Return what was found after some rounds, what the best fixed number does, and the limit."""
    within, engine = max(60, rounds * max(knee, start)), make(knee)
    limit = SlotLimit(start)
    run = Run(limit, seed)
    run.serve(engine, within)
    found = figures(run.serve(engine, MEASURED))
    return found, at_best(make, knee, seed), limit.slots


@pytest.mark.parametrize("knee", [1, 3, 8, 24, 64])
@pytest.mark.parametrize("make", [flat, thrashing, queueing, refusing])
def test_it_comes_near_the_best_fixed_number(make: Callable[[int], Engine], knee: int) -> None:
    found = [settled(make, knee, 1, seed) for seed in SEEDS]
    assert median(ours.throughput / best.throughput for ours, best, _ in found) >= 0.9


@pytest.mark.parametrize("make", [flat, thrashing, refusing])
def test_first_bytes_come_about_as_early_as_at_the_best_number(
    make: Callable[[int], Engine],
) -> None:
    """Later on, where the number is too large to be found within 60 requests."""
    found = [settled(make, 24, 1, seed, rounds=10) for seed in SEEDS]
    assert median(ours.first_byte_p95_s / best.first_byte_p95_s for ours, best, _ in found) < 1.1


@pytest.mark.parametrize("start", [4, 16, 64])
def test_it_finds_the_number_from_any_start(start: int) -> None:
    found = [settled(flat, 8, start, seed) for seed in SEEDS]
    assert all(ours.throughput >= 0.9 * best.throughput for ours, best, _ in found)
    assert median(slots for *_, slots in found) == pytest.approx(8, abs=4)


def test_an_engine_that_always_gains_a_little_gets_many() -> None:
    found = [settled(soft, 16, 1, seed, rounds=40) for seed in SEEDS]
    assert median(ours.throughput / best.throughput for ours, best, _ in found) >= 0.9
    assert all(ours.first_byte_p95_s < 1.1 * best.first_byte_p95_s for ours, best, _ in found)


def requests_until(limit: SlotLimit, run: Run, engine: Engine, slots: int) -> int:
    """Return how many are answered until the limit is as low as that."""
    served = 0
    while limit.slots > slots and served < 1000:
        run.serve(engine, 1)
        served += 1
    return served


@pytest.mark.parametrize(
    ("before", "after", "slots"), [(flat(32), flat(8), 12), (refusing(16), refusing(6), 6)]
)
def test_an_engine_that_lost_room_gets_fewer_within_60_requests(
    before: Engine, after: Engine, slots: int
) -> None:
    took = []
    for seed in SEEDS:
        limit = SlotLimit()
        run = Run(limit, seed)
        run.serve(before, 400)
        took.append(requests_until(limit, run, after, slots))
    assert median(took) <= 60


@pytest.mark.parametrize("knee", [1, 2, 3, 4, 6, 8, 12])
@pytest.mark.parametrize("make", [flat, thrashing, refusing])
def test_from_60_requests_on_it_is_as_good_as_the_best_number(
    make: Callable[[int], Engine], knee: int
) -> None:
    """On requests that are all alike, where each that is late shows in the p95."""
    found = []
    for seed in range(3):
        runs = [Run(one, seed, ALIKE) for one in (SlotLimit(), knee)]
        ours, fixed = (figures_of(run, make(knee), 60, MEASURED) for run in runs)
        found.append(
            (
                ours.throughput / fixed.throughput,
                ours.first_byte_p95_s / fixed.first_byte_p95_s,
            )
        )
    assert median(throughput for throughput, _ in found) >= 0.9
    assert median(first_byte for _, first_byte in found) <= 1.1


def test_an_engine_that_is_slower_at_any_number_keeps_its_slots() -> None:
    for seed in SEEDS:
        limit = SlotLimit()
        run = Run(limit, seed)
        run.serve(flat(16), 400)
        run.serve(Engine(lambda n: 3.0 * max(1.0, n / 16)), 200)
        assert limit.slots >= 10, limit.reason


# -- one thing at a time


def sample(seconds: float = 1.0, model: str = "llama") -> Sample:
    return Sample(model, 100, 50, 0.2 * seconds, 0.8 * seconds)


def test_it_begins_with_one_and_doubles() -> None:
    limit = SlotLimit()
    seen = [limit.slots]
    while limit.slots < 64:
        limit.note(sample(), started_s=limit.changes + 0.5, now_s=limit.changes + 1.0)
        if limit.slots != seen[-1]:
            seen.append(limit.slots)
    assert seen == [1, 2, 4, 8, 16, 32, 64]
    assert limit.reason == "32 at once gave 100% more throughput than 16"


def test_it_never_exceeds_its_ceiling() -> None:
    limit = SlotLimit(ceiling=6)
    for _ in range(1000):
        limit.note(sample(), started_s=limit.changes + 0.5, now_s=limit.changes + 1.0)
        assert limit.slots <= 6
    assert limit.slots >= 5
    assert SlotLimit().ceiling == SLOTS_MAX == 256


def test_requests_from_before_a_change_say_nothing() -> None:
    limit = SlotLimit()
    for _ in range(3):
        limit.note(sample(), started_s=0.0, now_s=5.0)
    assert limit.slots == 2
    for _ in range(50):
        assert not limit.note(sample(), started_s=4.9, now_s=9.0)
    assert limit.slots == 2


def test_each_refusal_takes_one_off_down_to_one() -> None:
    limit = SlotLimit(4)
    assert limit.note_refused(1.0)
    assert (limit.slots, limit.reason) == (3, "the node refused a request as one too many")
    for _ in range(5):
        limit.note_refused(2.0)
    assert limit.slots == 1


def test_of_requests_that_time_out_together_one_counts() -> None:
    limit = SlotLimit(16)
    assert limit.note_timed_out(0.0, 1.0)
    assert not limit.note_timed_out(0.0, 1.0)
    assert (limit.slots, limit.reason) == (12, "a request was not answered in time")


def test_an_engine_that_answers_nothing_in_time_gets_fewer_and_fewer() -> None:
    limit = SlotLimit(16)
    for number in range(10):
        limit.note_timed_out(60.0 * number, 60.0 * (number + 1))
    assert limit.slots == 1


def test_requests_that_wait_inside_are_taken_off() -> None:
    limit = SlotLimit(16)
    assert not limit.note_waiting(0, 1.0)
    assert limit.note_waiting(3, 1.0)
    assert (limit.slots, limit.reason) == (13, "3 requests waited inside the node")
    limit.note_waiting(100, 2.0)
    assert limit.slots == 6


def test_requests_left_from_a_higher_limit_are_not_taken_off_again() -> None:
    limit = SlotLimit(16)
    limit.note_waiting(6, 1.0, in_flight=16)
    assert limit.slots == 10
    assert not limit.note_waiting(5, 2.0, in_flight=15)
    limit.note_waiting(6, 3.0, in_flight=15)
    assert limit.slots == 9


def test_how_many_wait_inside_follows_from_how_late_streams_begin() -> None:
    """Of 10 at once 4 wait, where each waits for 4 tenths of its time and runs as fast as ever."""
    costs = learned(8, [Sample("llama", 100, 50, 0.1, 1.1)] * 8)
    waiting = costs.measure(10, [Sample("llama", 100, 50, 0.1 + 0.8, 1.1)] * 8)
    slower = costs.measure(10, [Sample("llama", 100, 50, 0.4, 4.4)] * 8)
    assert waiting is not None
    assert slower is not None
    assert costs.inside(waiting, 1.0) == pytest.approx(4.0, abs=0.01)
    assert costs.inside(slower, 1.0) == 0.0


def test_the_number_that_a_node_names_is_start_and_ceiling() -> None:
    limit = SlotLimit()
    assert limit.note_ceiling(SLOTS_MAX, 1.0)
    assert limit.slots == SLOTS_MAX
    assert limit.note_ceiling(4, 2.0)
    assert not limit.note_ceiling(4, 3.0)
    assert (limit.slots, limit.reason) == (4, "the node says that it runs 4 at once")


def test_a_number_that_the_node_names_stays_though_fewer_would_do_as_well() -> None:
    engine, named, found = flat(2), SlotLimit(), SlotLimit(8)
    named.note_ceiling(8, 0.0)
    for limit in (named, found):
        Run(limit, seed=1).serve(engine, 2000)
    assert named.slots == 8
    assert found.slots < 8


def test_a_node_that_names_many_gets_them_back_when_it_has_more_room() -> None:
    limit = SlotLimit()
    limit.note_ceiling(320, 0.0)
    for _ in range(120):
        limit.note_refused(1.0)
    for number in range(3000):
        now_s, knee = 2.0 + number, 200 if number < 1500 else 400
        limit.note(sample(max(1.0, limit.slots / knee)), started_s=now_s, now_s=now_s)
        assert limit.slots >= 200, limit.reason
    assert limit.slots == 320, limit.reason


def test_a_search_below_two_says_that_it_tries_one() -> None:
    limit, reasons = SlotLimit(8), []
    for number in range(60):
        took = sample(float(limit.slots))
        if limit.note(took, started_s=float(number), now_s=number + 0.5):
            reasons.append((limit.slots, limit.reason))
    assert reasons[1] == (1, "seeing whether 1 do as well")


@pytest.mark.parametrize("cached", [0.0, 0.8, 0.95])
def test_what_requests_cost_is_told_right_after_thousands_of_rounds(cached: float) -> None:
    """Also where a few take many times as long as most: those whose prompts are not cached."""
    limit, draw = SlotLimit(), random.Random(1)
    for number in range(10_000):
        slowdown = max(1.0, limit.slots / 16) * draw.lognormvariate(0.0, 0.5)
        first_s = 0.1 if draw.random() < cached else 2.0
        one = Sample("llama", 100, 50, slowdown * first_s, slowdown)
        limit.note(one, started_s=float(number), now_s=number + 0.5)
    costs = limit._costs
    assert 0.01 < costs._lines["llama", "first"].at(100) < 20.0
    assert 0.1 < costs._lines["llama", "rest"].at(50) < 10.0


def learned(slots: int, samples: list[Sample]) -> Costs:
    costs = Costs()
    costs.learn(samples, Round(slots, len(samples), 1.0, 1.0, 1.0))
    return costs


def gain(low: list[Sample], high: list[Sample]) -> float | None:
    """Return what share of a rise from 4 to 8 became throughput; None if nothing compares."""
    costs = learned(4, low)
    four, eight = costs.measure(4, low), costs.measure(8, high)
    assert four is not None
    return None if eight is None else costs.gain(four, eight)[0]


def test_the_gain_does_not_depend_on_what_was_asked() -> None:
    """Twice the requests at half the speed gain nothing, however long prompts and answers are."""

    def took(prompt: int, output: int, slowdown: float) -> Sample:
        first_s, rest_s = 0.05 + 0.0002 * prompt, 0.02 * output
        return Sample("llama", prompt, output, slowdown * first_s, slowdown * rest_s)

    low = [took(prompt, 100, 1.0) for prompt in (100, 200, 400, 800)]
    same = [took(prompt, 10, 1.0) for prompt in (5000, 9000, 3000)]
    half = [took(prompt, 900, 2.0) for prompt in (10, 20, 50)]
    assert gain(low, same) == pytest.approx(1.0, abs=0.01)
    assert gain(low, half) == pytest.approx(0.0, abs=0.01)


def test_models_are_compared_with_themselves_alone() -> None:
    low = [sample(1.0), sample(9.0, model="large")]
    high = [sample(1.0), sample(1.0), sample(9.0, model="large")]
    assert gain(low, high) == pytest.approx(1.0)
    assert gain(low, [sample(model="other")]) is None


def test_a_trial_whose_streams_begin_late_ends_at_once() -> None:
    limit = SlotLimit()
    run = Run(limit, 1)
    while not (limit.in_trial and limit.listens):
        run.serve(queueing(8), 1)
    tried = limit.slots
    for _ in range(2):
        limit.note_first_byte("llama", 100, 50.0, 1e6, 1e6)
    assert limit.slots < tried
    assert limit.reason == f"with {tried} at once, first bytes came late"


def test_a_trial_ends_when_a_stream_should_have_begun_and_another_answer_ends() -> None:
    limit = SlotLimit()
    run = Run(limit, 1)
    while not (limit.in_trial and limit.listens):
        run.serve(queueing(8), 1)
    tried, sent = limit.slots, [("llama", 100, 1e6)]
    assert not limit.note_silent(sent, 1e6 + 0.05)
    assert not limit.note_silent([], 1e6 + 50.0)
    assert limit.note_silent(sent, 1e6 + 50.0)
    assert limit.slots < tried
    assert limit.reason == f"with {tried} at once, first bytes came late"
    assert not limit.note_silent(sent, 1e6 + 60.0)  # it is settled, and does not listen


def rises_to(slots: int) -> SlotLimit:
    """Return a limit that is searching there, of an engine with room for it."""
    limit = SlotLimit()
    while limit.slots < slots:
        limit.note(Sample("llama", 100, 50, 0.1, 0.9), limit.changes + 0.5, limit.changes + 1.0)
    return limit


def test_a_search_whose_streams_begin_late_ends_where_the_room_did() -> None:
    """Six have begun since the limit rose from 8, but two of them because others ended."""
    limit = rises_to(16)
    for _ in range(4):
        assert not limit.note_first_byte("llama", 100, 0.1, 1e6, 1e6)
    for _ in range(2):
        assert not limit.note_silent([], 1e6)
    assert not limit.note_first_byte("llama", 100, 5.0, 1e6, 1e6)
    assert limit.note_first_byte("llama", 100, 5.0, 1e6, 1e6)
    assert (limit.slots, limit.reason) == (12, "with 16 at once, first bytes came late")


def test_a_search_ends_when_streams_should_have_begun_and_another_ends() -> None:
    limit = rises_to(16)
    for _ in range(3):
        assert not limit.note_first_byte("llama", 100, 0.1, 1e6, 1e6)
    sent = [("llama", 100, 1e6)] * 5
    assert not limit.note_silent(sent, 1e6 + 0.3)
    assert limit.note_silent(sent, 1e6 + 0.6)  # they are read by then, even one after the other
    assert (limit.slots, limit.reason) == (10, "with 16 at once, first bytes came late")


def test_a_search_whose_streams_begin_late_again_goes_half_the_way_back() -> None:
    limit = rises_to(16)
    for late in range(3):
        for _ in range(2):
            limit.note_first_byte("llama", 100, 50.0, 1e6, 1e6)
        assert limit.slots == (10, 9, 8)[late]
    assert not limit.listens


@pytest.mark.parametrize(
    ("first_byte_s", "slots"), [(0.1, 13), (50.0, 8), (None, 8)], ids=["in time", "late", "whole"]
)
def test_where_streams_waited_inside_a_trial_without_that_begins_the_search(
    first_byte_s: float | None, slots: int
) -> None:
    """Although the gain of one more, here none, cannot be told from noise."""
    limit = rises_to(16)
    while limit.listens:
        limit.note_first_byte("llama", 100, 50.0, 1e6, 1e6)
    assert limit.slots == 8
    while not limit.in_trial:
        limit.note(Sample("llama", 100, 50, 0.1, 0.9), 2e6, 2e6)
    assert limit.slots == 9
    if first_byte_s is not None:
        limit.note_first_byte("llama", 100, first_byte_s, 3e6, 3e6)
    while limit.slots == 9:
        limit.note(Sample("llama", 100, 50, 0.1, 0.9 * 9 / 8), 3e6, 3e6)
    assert (limit.slots, limit.in_trial) == (slots, slots == 8)


def streams_at(slots: int, seconds: float) -> tuple[list[Stream], list[Stream]]:
    """Return as many streams, and the same once each has written for so long."""
    names = [str(number) for number in range(slots)]
    before = [("llama", name, 0.0, 1e6) for name in names]
    return before, [("llama", name, 5000.0, 1e6 + seconds) for name in names]


def rises_beside_streams(slots: int = 16) -> SlotLimit:
    """Return a limit that rose from 8 to 16 while 8 streams wrote 5,000 bytes a second each."""
    limit = rises_to(slots // 2)
    for streams in streams_at(slots // 2, 1.0):
        assert not limit.note_streams(streams, 1e6)
    while limit.slots < slots:
        limit.note(Sample("llama", 100, 50, 0.1, 0.9), limit.changes + 0.5, limit.changes + 1.0)
    return limit


def test_a_search_that_only_makes_streams_slower_ends_without_whole_answers() -> None:
    limit = rises_beside_streams()
    begun, written = streams_at(16, 2.0)
    assert not limit.note_streams(begun, 1e6)
    assert limit.note_streams(written, 1e6)
    assert (limit.slots, limit.reason) == (8, "16 at once gave no more throughput")
    assert not limit.listens


def test_a_search_among_few_streams_waits_for_whole_answers() -> None:
    """On a CPU, llama.cpp runs 4 for some tokens as if they only shared the speed of 2."""
    limit = rises_beside_streams(4)
    for streams in streams_at(4, 2.0):
        assert not limit.note_streams(streams, 1e6)
    assert (limit.slots, limit.listens) == (4, True)


def test_a_search_goes_on_as_soon_as_streams_are_as_fast_as_before() -> None:
    limit = rises_beside_streams()
    begun, written = streams_at(16, 1.0)
    assert not limit.note_streams(begun, 1e6)
    assert limit.note_streams(written, 1e6)
    assert (limit.slots, limit.reason) == (32, "16 at once gave 100% more throughput than 8")


def test_streams_at_a_limit_that_is_not_reached_say_nothing() -> None:
    limit = rises_beside_streams()
    for streams in streams_at(14, 9.0):
        assert not limit.note_streams(streams, 1e6)
    assert limit.slots == 16


def test_an_engine_that_gains_nothing_with_2_but_with_4_gets_4() -> None:
    """As llama.cpp does on a CPU."""
    engine = Engine(lambda n: {1: 1.0, 2: 1.96, 3: 2.6}.get(n, 3.08 * n / 4))
    for seed in SEEDS:
        limit = SlotLimit()
        Run(limit, seed).serve(engine, 300)
        assert limit.slots >= 4, limit.reason


def test_prompts_that_are_read_one_after_the_other_are_not_late() -> None:
    """Eight more are sent at once, and each takes 0.1 s to be read."""
    limit = rises_to(16)
    for number in range(1, 9):
        assert not limit.note_first_byte("llama", 100, 0.1 * number, 1e6, 1e6)
    for _ in range(2):
        limit.note_first_byte("llama", 100, 0.8, 1e6, 1e6)
    assert limit.slots < 16


@pytest.mark.parametrize("make", [queueing, refusing])
def test_an_engine_that_runs_one_keeps_one(make: Callable[[int], Engine]) -> None:
    for seed in SEEDS:
        limit, run = SlotLimit(), Run(1, seed)
        tried = Run(limit, seed)
        for each in (tried, run):
            each.serve(make(1), 60)
        ours, fixed = (figures(each.serve(make(1), MEASURED)) for each in (tried, run))
        assert sum(one.slots == 1 for one in tried.ended[60:]) >= 0.9 * MEASURED, limit.reason
        assert ours.throughput >= 0.9 * fixed.throughput
        assert limit.changes <= 60


def test_requests_that_have_become_faster_begin_the_search_again() -> None:
    for seed in SEEDS:
        limit = SlotLimit()
        run = Run(limit, seed)
        run.serve(soft(4), 400)
        was, served = 0, 0
        while "times as fast" not in limit.reason and served < 100:
            was = limit.slots
            run.serve(soft(16), 1)
            served += 1
        assert limit.slots == 2 * was, limit.reason


def test_an_engine_that_lost_room_during_a_trial_gets_fewer() -> None:
    for seed in SEEDS:
        limit = SlotLimit()
        run = Run(limit, seed)
        run.serve(flat(32), 300)
        while not (limit.in_trial and limit.reason.startswith("seeing")):
            run.serve(flat(32), 1)
        assert requests_until(limit, run, flat(8), 12) <= 150


@pytest.mark.parametrize(("first_byte_s", "slots"), [(0.13, 8), (0.43, 3)])
def test_more_at_which_streams_begin_late_must_gain_nearly_all(
    first_byte_s: float, slots: int
) -> None:
    """Both take 1.3 times as long in all, which gains six tenths of what doubling could."""
    limit = SlotLimit()
    while limit.slots < 4:
        usual = Sample("llama", 100, 50, 0.1, 0.9)
        limit.note(usual, started_s=limit.changes + 0.5, now_s=limit.changes + 1.0)
    while limit.slots == 4:
        longer = Sample("llama", 100, 50, first_byte_s, 1.3 - first_byte_s)
        limit.note(longer, started_s=limit.changes + 0.5, now_s=limit.changes + 1.0)
    assert limit.slots == slots


SAMPLES = st.builds(
    Sample,
    st.sampled_from(["a", "b"]),
    st.integers(0, 10**9) | st.just(0),
    st.integers(0, 10**9) | st.just(0),
    st.floats(0.0, 1e6) | st.just(0.0),
    st.floats(-1.0, 1e6) | st.just(0.0),
)


def tell(limit: SlotLimit, kind: str, one: Sample, now_s: float) -> bool:
    if kind == "refused":
        return limit.note_refused(now_s)
    if kind == "timed out":
        return limit.note_timed_out(now_s, now_s)
    if kind == "waiting":
        return limit.note_waiting(one.output_tokens, now_s)
    if kind == "named":
        return limit.note_ceiling(1 + one.prompt_tokens % 99, now_s)
    if kind == "silent":
        return limit.note_silent([(one.model, one.prompt_tokens, now_s - one.first_byte_s)], now_s)
    if kind == "streams":
        done, slow = float(one.output_tokens), 1.0 + one.prompt_tokens % 7
        names = map(str, range(limit.slots))
        streams = [(one.model, name, done * now_s, slow * now_s) for name in names]
        return limit.note_streams(streams, now_s)
    if kind == "begun":
        return limit.note_first_byte(one.model, one.prompt_tokens, one.first_byte_s, now_s, now_s)
    return limit.note(one, now_s, now_s, max(1, limit.slots - (one.output_tokens % 3)))


KINDS = st.sampled_from(
    ["refused", "timed out", "waiting", "named", "begun", "silent", "streams", "streams"]
)


@given(st.data(), st.integers(1, 300))
def test_whatever_comes_the_limit_is_within_its_bounds(data: st.DataObject, start: int) -> None:
    limit = SlotLimit(start)
    some = data.draw(st.lists(SAMPLES, min_size=1, max_size=12))
    rare = data.draw(st.dictionaries(st.integers(0, 400), KINDS, max_size=40))
    for number in range(400):
        before, changes = (limit.slots, limit.in_trial), limit.changes
        kind, one = rare.get(number, "answered"), some[number % len(some)]
        changed = tell(limit, kind, one, float(number))
        assert 1 <= limit.slots <= limit.ceiling
        # Where a trial is kept, its number becomes the limit without being another one.
        assert changed == ((limit.slots, limit.in_trial) != before)
        assert limit.changes == changes + changed
