"""Nodes that tell how much of their key-value cache is free: what may start there, and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Cancelled, Resumed, Route, Wait
from forebay.core.events import Arrived

from .rig import Rig

ANSWER = 100  # tokens, as long as none was measured


def new_rig(**options: object) -> Rig:
    return Rig(output_tokens_unmeasured=ANSWER, max_size=10_000, **options)


def tell(rig: Rig, free: int, reading: int, name: str = "n", slots: int = 8) -> list[str]:
    """Let a node tell its room; return what starts."""
    actions = rig.node(name, slots, kv_free_tokens=free, kv_reading=reading)
    return [action.id for action in actions if isinstance(action, Route)]


def test_a_node_that_does_not_tell_is_limited_by_its_slots_alone() -> None:
    rig = new_rig()
    rig.node("n", 2)
    rig.start("a", prompt_tokens=10**9)
    rig.start("b", prompt_tokens=10**9)
    rig.wait("c")
    assert tell(rig, 0, 1, slots=3) == []
    rig.node("n", 3)
    assert rig.routed[-1].id == "c"


def test_what_does_not_fit_keeps_its_turn_but_not_from_a_higher_class() -> None:
    rig = new_rig()
    tell(rig, 500, 1)
    rig.start("a", prompt_tokens=100)
    rig.wait("large", prompt_tokens=900)
    rig.wait("small", prompt_tokens=10)
    rig.start("urgent", prompt_tokens=10, priority="high")
    rig.give(Cancelled("large"))
    assert rig.routed[-1].id == "small"


def test_what_does_not_fit_goes_to_another_node_and_lets_the_next_one_start() -> None:
    rig = new_rig()
    tell(rig, 500, 1, "n")
    rig.node("other", 1)
    first = rig.start("a", prompt_tokens=100)
    second = rig.start("b", prompt_tokens=100)
    assert {first.node, second.node} == {"n", "other"}
    rig.wait("large", prompt_tokens=900)
    rig.wait("small", prompt_tokens=10)
    here, there = ("a", "b") if first.node == "n" else ("b", "a")
    started = rig.finish(there)
    assert started == ["large", "small"]
    assert [route.node for route in rig.routed[-2:]] == ["other", "n"]
    assert here not in started


def test_what_another_core_started_there_counts_as_started() -> None:
    rig = new_rig()
    tell(rig, 500, 1)
    rig.give(Resumed(Arrived("theirs", "m", prompt_tokens=300), node="n", attempt=1))
    rig.wait("a", prompt_tokens=1)


def test_the_answers_measured_on_such_a_node_are_the_ones_expected() -> None:
    rig = new_rig(fairness="fifo")
    tell(rig, 1000, 1)
    rig.start("a")
    rig.finish("a", prompt_tokens=0, output_tokens=400)
    tell(rig, 1000, 2)
    rig.start("b", prompt_tokens=100)
    rig.wait("c", prompt_tokens=101)
    assert tell(rig, 501, 3) == ["c"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 700), st.integers(0, 300)),
        st.tuples(st.just("finish"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 1500), st.just(0)),
    ),
    max_size=80,
)


class Oracle:
    """One node and one line, kept by the rule; what the core starts is held against it."""

    def __init__(self, slots: int) -> None:
        self.rig = new_rig(fairness="fifo")
        self.slots = slots
        self.size: dict[str, int] = {}
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.seen = 0
        self.read(1000, 0)

    def fits(self, name: str) -> bool:
        return not self.running or self.size[name] <= self.free - sum(self.since.values())

    def take(self, step: str, number: int, value: int, limit: int) -> None:
        if step == "arrive":
            name = f"r{number}"
            self.size[name] = value + (min(limit, ANSWER) if limit else ANSWER)
            self.waiting.append(name)
            self.rig.give_arrival(name, prompt_tokens=value, output_limit=limit)
        elif step == "read":
            self.read(value, number + 1)
        elif step == "finish" and self.running:
            self.finish(value % len(self.running))
        elif step == "cancel" and self.waiting:
            self.rig.give(Cancelled(self.waiting.pop(value % len(self.waiting))))

    def read(self, free: int, reading: int) -> None:
        self.free, self.since = free, dict[str, int]()
        tell(self.rig, free, reading, slots=self.slots)

    def finish(self, index: int) -> None:
        name = self.running.pop(index)
        self.since.pop(name, None)
        self.rig.finish(name)

    def check(self) -> None:
        """Follow what the core has started, one by one."""
        for route in self.rig.routed[self.seen :]:
            name = self.waiting.pop(0)
            assert route.id == name
            assert self.fits(name)
            assert len(self.running) < self.slots
            self.running.append(name)
            self.since[name] = self.size[name]
            self.seen += 1
        full = len(self.running) == self.slots
        assert not self.waiting or full or not self.fits(self.waiting[0])


@given(steps=STEPS, slots=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_nothing_starts_without_room_nothing_waits_with_it_and_all_start_in_order(
    steps: list[tuple[str, int, int]], slots: int
) -> None:
    oracle = Oracle(slots)
    for number, (step, value, limit) in enumerate(steps):
        oracle.take(step, number, value, limit)
        oracle.check()
    while oracle.running:
        oracle.finish(-1)
        oracle.check()
    assert not oracle.waiting


def test_a_wait_for_memory_is_told_as_busy() -> None:
    rig = new_rig()
    tell(rig, 100, 1)
    rig.start("a", prompt_tokens=100)
    answer = rig.arrive("b", prompt_tokens=100)
    assert isinstance(answer, Wait)
    assert answer.reason == "busy"
