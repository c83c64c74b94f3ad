"""Several workers find the slots of a node together: each sees a part of what is answered."""

from __future__ import annotations

from itertools import pairwise
from math import exp
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from bench.slots.__main__ import ALIKE, PLAIN, figures_of, plain, requests_to_find, throughputs
from bench.slots.engine import Engine, Run, flat, queueing, refusing, thrashing
from forebay.nodes.known_rounds import UNCAPPED, KnownRounds
from forebay.nodes.slot_rounds import Sample
from forebay.nodes.slot_sharing import (
    Answered,
    Begun,
    FollowedLimit,
    FoundSlots,
    LeadingLimit,
    News,
    Refused,
    SlotReport,
    TimedOut,
    Waiting,
    Writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.nodes.first_bytes import Silent
    from forebay.nodes.stream_pace import Slowdown, Stream

SAMPLE = Sample("llama", 100, 10, 0.2, 1.0)


class OfTwo(LeadingLimit):
    """The limit of the leader of two workers, each of which has about half of the requests."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: list[News] = []
        self._other = FollowedLimit(self._passed.append)
        self._random = Random(1)
        self._theirs: dict[str, bool] = {}  # streams, by name
        self._write = (0, 0)  # streams here and there

    def _other_s_turn(self, running: int) -> bool:
        """Say whether the other worker sees what is next; it knows what this one has found."""
        self._other.follow(self.found(running // 2, 2))
        return self._random.random() < 0.5

    def _report(self, running: int) -> bool:
        news = list(self._passed)
        self._passed.clear()
        own, theirs = running // 2, running - running // 2
        ours_write, theirs_write = self._write  # at least these run
        report = SlotReport("gpu1", max(theirs, theirs_write), news)
        return self.take("other", report, max(own, ours_write))

    def note(self, sample: Sample, started_s: float, now_s: float, running: int = UNCAPPED) -> bool:
        if self._other_s_turn(running):
            self._other.note(sample, started_s, now_s, running - running // 2)
            return self._report(running)
        self._report(running)
        return super().note(sample, started_s, now_s, running // 2)

    def note_streams(self, streams: list[Stream], now_s: float, ended: str = "") -> bool:
        """Have the worker tell whose stream begins or ends: of the others, it says nothing."""
        told = ended
        for _, name, *_ in streams:
            if name not in self._theirs:
                told, self._theirs[name] = name, self._random.random() < 0.5
        theirs = [one for one in streams if self._theirs[one[1]]]
        self._write = len(streams) - len(theirs), len(theirs)
        if self._theirs[told or streams[0][1]]:
            self._other.note_streams(theirs, now_s, ended)
            return self._report(len(streams))
        ours = [one for one in streams if not self._theirs[one[1]]]
        return super().note_streams(ours, now_s, ended)

    def note_silent(self, streams: list[Silent], now_s: float) -> bool:
        theirs = [one for one in streams if one[1] % 2]
        if self._other_s_turn(len(streams)):
            self._other.note_silent(theirs, now_s)
            return self._report(len(streams))
        return super().note_silent([one for one in streams if one not in theirs], now_s)


@pytest.mark.parametrize("knee", [2, 8])
@pytest.mark.parametrize("make", [flat, thrashing, queueing, refusing])
def test_after_60_requests_two_workers_serve_as_one_does_at_the_best_number(
    make: Callable[[int], Engine], knee: int
) -> None:
    found = []
    for seed in range(3):
        runs = [Run(one, seed, ALIKE, clients=2 * knee) for one in (OfTwo(), knee)]
        ours, fixed = (figures_of(run, make(knee), 60, 300) for run in runs)
        found.append(ours.throughput / fixed.throughput)
    assert median(found) >= 0.95


@pytest.mark.parametrize("kind", ["sharp", "refusing"])
def test_two_workers_find_more_room_within_60_requests_as_one_does(kind: str) -> None:
    rng, kinds = Random(kind), [name for name, _ in PLAIN]
    took: list[int] = []
    while len(took) < 10:
        number = kinds.index(kind) + len(kinds) * rng.randrange(7)
        before, after = plain(number), plain(number, 2.0 ** rng.uniform(1.0, 2.0))
        run = Run(OfTwo(), rng.randrange(10**6), before.load)
        run.serve(before.engine, 300)
        ended = run.serve(after.engine, 300)
        took.append(requests_to_find([one.slots for one in ended], throughputs(after)))
    assert median(took) <= 60


class OneCancels(LeadingLimit):
    """The limit of a node on which somebody cancels a stream every 0.2 s."""

    cancels_s = 0.0

    def note_refused(self, now_s: float) -> bool:
        while self.cancels_s <= now_s:
            self.note_broken_off(self.cancels_s)
            self.cancels_s += 0.2
        return super().note_refused(now_s)


def test_fault_80_one_who_cancels_every_fifth_of_a_second_does_not_move_the_slots() -> None:
    for seed in range(5):
        run = Run(OneCancels(), seed, ALIKE, clients=300)
        assert max(one.slots for one in run.serve(refusing(8), 600)[100:]) <= 12


# -- the leader


def test_a_limit_counts_as_reached_by_the_requests_of_all_workers() -> None:
    limit = LeadingLimit()
    for _ in range(3):
        limit.note(SAMPLE, 0.0, 1.0, running=1)
    assert limit.slots == 2
    limit.take("w1", SlotReport("gpu1", in_use=1), own=1)
    assert limit.total(1) == 2
    before = limit.changes
    for _ in range(20):
        limit.note(SAMPLE, 2.0, 3.0, running=1)
    assert limit.changes > before


def test_what_a_worker_had_that_is_gone_counts_no_more() -> None:
    limit = LeadingLimit()
    limit.take("w1", SlotReport("gpu1", in_use=3), own=0)
    limit.take("w2", SlotReport("gpu1", in_use=2), own=0)
    limit.forget("w1")
    limit.forget("w1")
    assert limit.total(1) == 3


def test_streams_of_all_workers_are_compared_together_and_ended_ones_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[set[str]] = []
    limit = LeadingLimit()
    monkeypatch.setattr(
        limit,
        "_pace",
        type("Pace", (), {"note": lambda _, streams, __: told.append(names(streams))})(),
    )

    def names(streams: list[Stream]) -> set[str]:
        return {name for _, name, *_ in streams}

    here: list[Stream] = [("llama", "a", 10.0, 1.0), ("llama", "b", 10.0, 1.0)]
    limit.note_streams(here, 1.0, ended="b")
    there: list[Stream] = [("llama", "c", 10.0, 1.0)]
    limit.take("w1", SlotReport("gpu1", 1, [Writing(there, 1.0, "c")]), own=1)
    limit.note_streams(here[:1], 2.0)
    assert told == [{"a", "b"}, {"a", "c"}, {"a"}]


@pytest.mark.parametrize("worker", ["", "w1"])
def test_streams_that_have_begun_since_another_worker_looked_are_not_late(worker: str) -> None:
    """Its own, and those of which it was told."""
    limit, at_s = searching_at(4)
    silent: list[Silent] = [("llama", 100, at_s), ("llama", 100, at_s)]
    look(limit, worker, silent, at_s + 0.1)
    for _ in range(2):
        if worker:
            begun = Begun("llama", 100, 0.2, at_s, at_s + 0.2)
            limit.take(worker, SlotReport("gpu1", 2, [begun]), own=2)
        else:
            limit.note_first_byte("llama", 100, 0.2, at_s, at_s + 0.2)
    look(limit, "w2" if worker else "w1", [], at_s + 9.0)
    assert limit.slots == 4


def test_streams_of_another_worker_are_late_if_they_were_when_it_spoke_of_them() -> None:
    """They may have been cancelled since."""
    limit, at_s = searching_at(4)
    silent: list[Silent] = [("llama", 100, at_s), ("llama", 100, at_s)]
    look(limit, "w1", silent, at_s + 0.1)
    look(limit, "", [], at_s + 9.0)
    assert limit.slots == 4
    look(limit, "w1", silent[:1], at_s + 9.0)
    assert limit.slots == 4
    look(limit, "", silent[1:], at_s + 9.0)
    assert limit.reason == "with 4 at once, first bytes came late"


@pytest.mark.parametrize("worker", ["", "w1"])
def test_streams_that_were_cancelled_write_no_more(
    monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    """So many write at once only if as many requests run."""
    told: list[int] = []
    limit, at_s = searching_at(4)
    monkeypatch.setattr(
        limit,
        "_pace",
        type("Pace", (), {"note": lambda _, streams, __: told.append(len(streams))})(),
    )
    streams: list[Stream] = [("llama", name, 10.0, at_s) for name in "abcd"]
    tell(limit, worker, streams, at_s)
    limit.take("w1", SlotReport("gpu1", in_use=1), own=1)
    tell(limit, "w2", streams[:1], at_s + 1.0)
    assert told == [4, 2]


def test_how_far_streams_had_come_before_more_was_tried_is_no_mark_for_their_pace_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All write half as fast with 5; of two, their worker spoke last 3 s before the fifth came."""
    limit, at_s = searching_at(4)
    rises_s = at_s + 10.0

    def come(names: str, now_s: float) -> list[Stream]:
        done = 1000.0 * (min(now_s, rises_s) - at_s) + 500.0 * max(0.0, now_s - rises_s)
        return [("llama", name, done, now_s) for name in names]

    for now_s in (at_s, at_s + 3.0, at_s + 6.0, rises_s - 3.0):
        tell(limit, "", come("ab", now_s), now_s)
        tell(limit, "w1", come("cd", now_s), now_s)
    monkeypatch.setattr(limit, "_known", KnownRounds())  # so that it decides nothing
    limit._set(5, "more is tried", rises_s)
    found: list[Slowdown | None] = []
    note = limit._pace.note
    monkeypatch.setattr(limit._pace, "note", lambda *told: found.append(note(*told)))
    for now_s in (rises_s, rises_s + 2.0, rises_s + 4.2):
        tell(limit, "", come("abe", now_s), now_s)
        tell(limit, "w1", come("cd", now_s), now_s)
    (slower,) = (one for one in found if one is not None)
    assert exp(slower.log) == pytest.approx(2.0)


def tell(limit: LeadingLimit, worker: str, streams: list[Stream], now_s: float) -> None:
    """Have a worker tell how far its streams have come; "" is the leader."""
    if worker:
        limit.take(worker, SlotReport("gpu1", len(streams), [Writing(streams, now_s, "")]), own=4)
    else:
        limit.note_streams(streams, now_s)


def searching_at(slots: int) -> tuple[LeadingLimit, float]:
    """Return a limit that has risen so far, and a time after that."""
    limit, at_s = LeadingLimit(), 0.0
    while limit.slots < slots:
        at_s += 10.0
        limit.note(SAMPLE, at_s, at_s + 1.2)
    return limit, at_s + 10.0


def look(limit: LeadingLimit, worker: str, silent: list[Silent], now_s: float) -> None:
    """Have a worker tell which streams have not begun, as another ends; "" is the leader."""
    if worker:
        limit.take(worker, SlotReport("gpu1", 2, [Waiting(silent, now_s)]), own=2)
    else:
        limit.note_silent(silent, now_s)


def test_the_others_are_told_when_the_leader_needs_to_know_other_things() -> None:
    needs: list[tuple[bool, bool]] = []
    limit = LeadingLimit(on_needs=lambda: needs.append((limit.listens, limit.watches)))
    run = Run(limit, 1, ALIKE)
    run.serve(flat(4), 300)
    assert {(True, True), (False, False)} <= set(needs)
    assert all(one != other for one, other in pairwise(needs))


def test_a_search_whose_limit_is_not_reached_ends_by_as_many_as_all_workers_have() -> None:
    """Ten clients of two workers, five each, at a limit of 16; the leader has none."""
    limit, at_s = searching_at(16)
    passed: list[News] = []
    other, slow = FollowedLimit(passed.append), SAMPLE._replace(first_byte_s=0.5, rest_s=2.5)
    for turn in range(20):
        worker, at_s = f"w{turn % 2}", at_s + 1.0
        if limit.slots == 16:
            other.follow(limit.found(0, workers=3))
            other.note(slow, at_s, at_s + 3.0, running=5)
            limit.take(worker, SlotReport("gpu1", 5, list(passed)), own=0)
            passed.clear()
    assert (limit.slots, limit.reason) == (8, "10 at once gave no more throughput")


# -- the others


def test_a_follower_passes_on_all_that_it_sees_but_what_ran_among_few() -> None:
    passed: list[News] = []
    limit = FollowedLimit(passed.append)
    limit.follow(FoundSlots(slots=4, workers=2))
    assert not limit.note(SAMPLE, 1.0, 2.0, running=1)
    assert not limit.note(SAMPLE, 1.0, 2.0, running=2)
    assert not limit.note_first_byte("llama", 100, 0.2, 1.0, 1.2)
    assert not limit.note_streams([("llama", "a", 5.0, 1.0)], 2.0, "a")
    assert not limit.note_silent([("llama", 100, 1.0)], 2.0)
    assert not limit.note_timed_out(1.0, 2.0)
    assert limit.note_refused(2.0)
    assert passed == [
        Answered(SAMPLE, 1.0, 2.0, 2),
        Begun("llama", 100, 0.2, 1.0, 1.2),
        Writing([("llama", "a", 5.0, 1.0)], 2.0, "a"),
        Waiting([("llama", 100, 1.0)], 2.0),
        TimedOut(1.0, 2.0),
        Refused(2.0),
    ]


def test_a_follower_has_what_the_leader_found_and_says_whether_that_is_new() -> None:
    limit = FollowedLimit(list[News]().append, slots=3)
    assert (limit.slots, limit.reason) == (3, "")
    assert limit.follow(FoundSlots(4, "more", listens=True, since_s=5.0, in_use=7))
    assert not limit.follow(FoundSlots(4, "more", watches=True, since_s=5.0, in_use=7))
    assert (limit.slots, limit.reason, limit.listens, limit.watches) == (4, "more", False, True)
    assert limit.total(2) == 7
    assert limit.expects_refusal(4.0)
    assert not limit.expects_refusal(5.0)


def test_a_node_with_one_slot_has_none_to_take_off() -> None:
    assert not FollowedLimit(list[News]().append).note_refused(1.0)
