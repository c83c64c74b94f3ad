"""A core that takes over goes on as the one before it would have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Expire,
    Finished,
    Lent,
    NodeChanged,
    NodeRemoved,
    Observed,
    Options,
    Reject,
    Resumed,
    Returned,
    Route,
    Scheduler,
    Snapshot,
    Wait,
)
from forebay.errors import InvariantBroken

FIFO = Options(fairness="fifo", max_size=1000)
GPU = NodeChanged("gpu1", slots=2, models=("llama",))


class Witness:
    """Knows of every ticket what its owner would know, and can tell another core."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(FIFO)
        self.scheduler.handle(GPU, 0.0)
        self.now_s = 0.0
        self.arrivals: dict[str, tuple[Arrived, float]] = {}
        self.seqs: dict[str, int] = {}
        self.running: dict[str, float] = {}
        self.started: list[str] = []

    def post(self, event: Arrived | Finished | Cancelled) -> None:
        self.now_s += 0.1
        if isinstance(event, Arrived):
            self.arrivals[event.id] = (event, self.now_s)
        else:
            self.forget(event.id)
        for action in self.scheduler.handle(event, self.now_s):
            self.take(action)

    def take(self, action: Action) -> None:
        if isinstance(action, Wait | Route):
            self.seqs[action.id] = action.seq
        if isinstance(action, Route):
            self.running[action.id] = self.now_s
            self.started.append(action.id)
        if isinstance(action, Reject | Expire):
            self.forget(action.id)

    def forget(self, ticket_id: str) -> None:
        self.arrivals.pop(ticket_id, None)
        self.running.pop(ticket_id, None)

    def resumed(self) -> list[Resumed]:
        told = []
        for name, (arrival, at_s) in self.arrivals.items():
            started_s = self.running.get(name)
            until_s = self.now_s if started_s is None else started_s
            told.append(
                Resumed(
                    arrival,
                    self.seqs[name],
                    until_s - at_s,
                    0 if started_s is None else 1,
                    "" if started_s is None else "gpu1",
                    0.0 if started_s is None else self.now_s - started_s,
                )
            )
        return told


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(("high", "normal", "low"))), max_size=30),
    st.randoms(use_true_random=False),
)
def test_a_core_rebuilt_in_any_order_starts_the_rest_as_the_old_one_would(
    steps: list[tuple[int, str]], chance: object
) -> None:
    old = Witness()
    for number, (step, priority) in enumerate(steps):
        if step == 0 and old.running:
            old.post(Finished(next(iter(old.running))))
        elif step == 1 and old.arrivals:
            old.post(Cancelled(next(reversed(old.arrivals))))
        else:
            old.post(Arrived(f"t{number}", "llama", user=f"u{step}", priority=priority))
    new = Witness()
    new.now_s = old.now_s
    told = old.resumed()
    chance.shuffle(told)  # type: ignore[attr-defined]
    told.sort(key=lambda one: not one.node)  # what runs first: its slots are taken
    for one in told:
        assert new.scheduler.handle(one, new.now_s) == []
    new.arrivals, new.running = dict(old.arrivals), dict(old.running)
    old.started.clear()
    for witness in (old, new):
        while witness.running:
            witness.post(Finished(next(iter(witness.running))))
    assert new.started == old.started
    assert not new.arrivals


def test_what_waited_goes_on_with_its_age() -> None:
    scheduler = Scheduler(Options(wait_s_max=60.0))
    scheduler.handle(NodeChanged("gpu1", slots=1, models=("llama",)), 0.0)
    scheduler.handle(Resumed(Arrived("a", "llama"), 1, 0.0, 1, "gpu1"), 0.0)
    assert scheduler.handle(Resumed(Arrived("b", "llama"), 2, 59.0), 0.0) == []
    assert scheduler.next_deadline_s() == 1.0
    (route,) = scheduler.handle(Finished("a"), 0.5)
    assert isinstance(route, Route)
    assert (route.id, route.waited_s, route.queued) == ("b", 59.5, True)


def test_what_has_waited_too_long_already_expires_at_once() -> None:
    scheduler = Scheduler(Options(wait_s_max=60.0))
    scheduler.handle(NodeChanged("gpu1", slots=0, models=("llama",)), 0.0)
    (expired,) = scheduler.handle(Resumed(Arrived("b", "llama"), 2, 61.0), 0.0)
    assert isinstance(expired, Expire)


def test_leases_beyond_the_slots_are_kept_and_drain() -> None:
    scheduler = Scheduler()
    scheduler.handle(NodeChanged("gpu1", slots=1, models=("llama",)), 0.0)
    for name in ("a", "b"):
        scheduler.handle(Resumed(Arrived(name, "llama"), node="gpu1", attempt=1), 0.0)
    assert isinstance(scheduler.handle(Arrived("c", "llama"), 0.0)[0], Wait)
    assert scheduler.handle(Finished("a"), 1.0) == []
    assert [action.id for action in scheduler.handle(Finished("b"), 1.0)] == ["c"]  # type: ignore[union-attr]


def test_a_retry_keeps_off_the_node_that_failed_it() -> None:
    scheduler = Scheduler()
    for name in ("gpu1", "gpu2"):
        scheduler.handle(NodeChanged(name, slots=1, models=("llama",)), 0.0)
    resumed = Resumed(Arrived("a", "llama"), 1, 0.5, 1, excluded=("gpu1",))
    (route,) = scheduler.handle(resumed, 0.0)
    assert isinstance(route, Route)
    assert (route.node, route.attempt) == ("gpu2", 2)


def test_a_ticket_that_is_alive_already_is_the_callers_bug() -> None:
    scheduler = Scheduler()
    scheduler.handle(Resumed(Arrived("a", "llama")), 0.0)
    with pytest.raises(InvariantBroken):
        scheduler.handle(Resumed(Arrived("a", "llama")), 0.0)


def test_a_lease_on_a_node_that_is_gone_is_held_until_it_ends() -> None:
    scheduler = Scheduler()
    scheduler.handle(Resumed(Arrived("a", "llama"), node="gpu9", attempt=1), 0.0)
    (seen,) = scheduler.handle(Observed(), 0.0)
    assert isinstance(seen, Snapshot)
    assert seen.running == 1
    scheduler.handle(NodeChanged("gpu9", slots=1, models=("llama",)), 0.0)
    assert isinstance(scheduler.handle(Arrived("b", "llama"), 0.0)[0], Wait)
    assert [a.id for a in scheduler.handle(Finished("a"), 0.0)] == ["b"]  # type: ignore[union-attr]


class TestLending:
    @pytest.fixture
    def scheduler(self) -> Scheduler:
        scheduler = Scheduler()
        scheduler.handle(GPU, 0.0)
        scheduler.handle(Lent("gpu1", 2), 0.0)
        return scheduler

    def test_a_slot_that_is_lent_is_taken(self, scheduler: Scheduler) -> None:
        assert isinstance(scheduler.handle(Arrived("a", "llama"), 0.0)[0], Wait)

    def test_a_slot_that_comes_back_goes_to_whoever_waits(self, scheduler: Scheduler) -> None:
        scheduler.handle(Arrived("a", "llama"), 0.0)
        (route,) = scheduler.handle(Lent("gpu1", -1), 0.0)
        assert isinstance(route, Route)
        assert isinstance(scheduler.handle(Arrived("b", "llama"), 0.0)[0], Wait)

    def test_what_runs_in_a_loan_gives_its_slot_back_to_the_loan(
        self, scheduler: Scheduler
    ) -> None:
        scheduler.handle(Resumed(Arrived("x", "llama"), node="gpu1", attempt=1, lent=True), 0.0)
        scheduler.handle(Arrived("a", "llama"), 0.0)
        assert scheduler.handle(Finished("x"), 1.0) == []
        (route,) = scheduler.handle(Lent("gpu1", -1), 1.0)
        assert isinstance(route, Route)

    def test_a_return_from_a_loan_stands_in_line(self, scheduler: Scheduler) -> None:
        scheduler.handle(Resumed(Arrived("x", "llama"), node="gpu1", attempt=1, lent=True), 0.0)
        assert scheduler.handle(Returned("x", exclude=False), 1.0) == []
        (route,) = scheduler.handle(Lent("gpu1", -1), 1.0)
        assert isinstance(route, Route)
        assert (route.id, route.attempt) == ("x", 2)

    def test_a_loan_outlives_the_removal_of_its_node(self, scheduler: Scheduler) -> None:
        scheduler.handle(NodeRemoved("gpu1"), 0.0)
        scheduler.handle(GPU, 0.0)
        assert isinstance(scheduler.handle(Arrived("a", "llama"), 0.0)[0], Wait)
        scheduler.handle(NodeRemoved("gpu1"), 0.0)
        scheduler.handle(Lent("gpu1", -2), 0.0)
        scheduler.handle(Cancelled("a"), 0.0)
        scheduler.handle(GPU, 0.0)
        assert isinstance(scheduler.handle(Arrived("b", "llama"), 0.0)[0], Route)


@pytest.mark.parametrize("fairness", ["fifo", "round_robin"])
@pytest.mark.parametrize("when_full", ["reject", "displace"])
def test_two_places_that_are_the_same_are_told_apart(fairness: str, when_full: str) -> None:
    """Two cores gave the same number: each of them to one of its own."""
    options = Options(fairness=fairness, when_full=when_full, max_size=3)  # type: ignore[arg-type]
    scheduler = Scheduler(options)
    for name in ("c", "b", "a"):
        scheduler.handle(Resumed(Arrived(name, "llama"), seq=7), 0.0)
    (start, *_) = scheduler.handle(NodeChanged("gpu1", slots=1, models=("llama",)), 1.0)
    assert isinstance(start, Route)
    assert start.id == "a"
    started = [start.id]
    for now_s in (2.0, 3.0):
        (start,) = scheduler.handle(Finished(started[-1]), now_s)
        assert isinstance(start, Route)
        started.append(start.id)
    assert started == ["a", "b", "c"]
