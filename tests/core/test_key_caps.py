"""`max_running` of a key: live calls are refused at it, jobs and prompts of sessions wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay.core import Arrived, KeyLimits, OptionsChanged, Reject, Resumed, Route, Wait
from forebay.core.options import Options

from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.core import Action

ONE: dict[str, Any] = {"key": "k", "key_running_max": 1}
TWO: dict[str, Any] = {"key": "k", "key_running_max": 2}


def test_jobs_of_a_key_at_its_limit_wait_and_start_when_one_ends() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.start("j1", job=True, **ONE)
    told = rig.wait("j2", job=True, **ONE)
    assert told.reason == "key"
    assert rig.describe("j2").reason == "key"
    rig.start("other", job=True, key="o", key_running_max=1)
    assert rig.finish("j1") == ["j2"]


def test_a_live_call_is_refused_while_jobs_use_what_its_key_may() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.start("j", job=True, **ONE)
    assert rig.refuse("a", **ONE).code == "user_queue_full"
    rig.finish("j")
    rig.start("a", **ONE)


def test_a_job_starts_only_where_no_live_call_of_its_key_waits() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "m2")
    rig.start("z")
    rig.wait("a", **TWO)
    assert rig.wait("j", "m2", job=True, **TWO).reason == "key"
    rig.start("other", "m2", job=True)
    rig.finish("other")
    assert Rig.started(rig.cancel("a")) == ["j"]


def test_a_prompt_at_the_limit_waits_and_its_time_limit_stands_still() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node(slots=5)
    rig.start("j", job=True, **ONE)
    assert rig.wait("p", patient=True, **ONE).reason == "key"
    assert rig.core.next_deadline_s() is None
    assert rig.tick(at_s=600.0) == []
    assert rig.finish("j") == ["p"]
    rig.come_back("p")  # what it waited for its key is not taken off its time
    assert rig.describe("p").state == "waiting"
    assert Rig.started(rig.node("n2")) == ["p"]


def test_the_time_limit_goes_on_when_the_key_has_room() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "m2")
    rig.start("z", "m2")
    rig.start("j", job=True, **ONE)
    rig.now_s = 3.0
    rig.wait("p", "m2", patient=True, **ONE)
    rig.now_s = 100.0
    assert rig.finish("j") == []
    assert rig.core.next_deadline_s() == 105.0
    (told,) = rig.tick(at_s=105.0)
    assert (told.id, told.code) == ("p", "queue_timeout")  # type: ignore[union-attr]


def test_prompts_go_before_jobs_of_their_key() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "m2")
    rig.start("j1", job=True, **ONE)
    rig.wait("j2", job=True, **ONE)
    rig.wait("p", "m2", patient=True, **ONE)
    assert rig.finish("j1") == ["p"]
    assert rig.finish("p") == ["j2"]


def test_as_many_prompts_wait_as_may_run_and_the_others_stay_with_their_sessions() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.start("p1", patient=True, **ONE)
    rig.wait("p2", patient=True, **ONE)
    assert rig.refuse("p3", patient=True, **ONE).code == "user_queue_full"
    assert rig.look().totals.rejected == {}


def test_a_retry_of_a_job_goes_before_the_others_of_its_key() -> None:
    rig = Rig()
    rig.node("n1")
    rig.start("j1", job=True, **ONE)
    rig.wait("j2", job=True, **ONE)
    assert Rig.started(rig.come_back("j1", exclude=False)) == ["j1"]
    rig.wait("j3", job=True, **ONE)
    assert Rig.started(rig.come_back("j1", exclude=True)) == ["j2"]
    assert Rig.started(rig.node("n2")) == []
    assert rig.finish("j2") == ["j1"]
    assert rig.finish("j1") == ["j3"]


@pytest.mark.parametrize("kind", ["job", "patient"])
def test_what_came_back_and_has_no_node_keeps_nothing_else_of_its_key_waiting(kind: str) -> None:
    rig = Rig(wait_s_max=100.0)
    rig.node("n1", 1, "m1")
    rig.node("n2", 1, "m2")
    rig.start("a", "m2", **{kind: True}, **ONE)
    rig.wait("j", "m1", **{kind: True}, **ONE)
    rig.node("n2", 0, "m2")
    started = Rig.started(rig.come_back("a", exclude=False))
    assert started == ["j"]
    assert Rig.started(rig.node("n2", 1, "m2")) == []
    assert rig.describe("a").reason == "key"
    assert rig.finish("j", after_s=600.0) == ["a"]
    rig.finish("a")
    rig.start("live", "m1", **ONE)


def test_live_calls_of_a_key_run_while_its_job_that_came_back_has_no_node() -> None:
    rig = Rig()
    rig.node("n1", 1, "m1")
    rig.node("n2", 1, "m2")
    rig.start("j", "m2", job=True, **ONE)
    rig.node("n2", 0, "m2")
    rig.come_back("j", exclude=False)
    rig.start("a", "m1", **ONE)
    rig.node("n2", 1, "m2")
    assert rig.finish("a") == ["j"]


def test_who_is_kept_from_its_turn_goes_before_younger_ones_that_may_go_already() -> None:
    rig = Rig(fairness="fifo")
    rig.node(slots=2)
    rig.start("z1")
    rig.start("z2")
    for name in ("j1", "j2", "j3"):
        assert rig.wait(name, job=True, **ONE).reason == "busy"
    rig.wait("x", job=True)
    rig.wait("j4", job=True, **ONE)
    assert rig.finish("z1") == ["j1"]
    assert rig.wait("j5", job=True, **ONE).reason == "key"
    assert rig.finish("j1") == ["j2"]  # j5 may go, but a slot is free for none
    assert rig.finish("z2") == ["x"]  # j3 was next, and its key may have no more
    assert rig.finish("j2") == ["j3"]
    assert rig.run_dry("j3") == ["j4", "j5"]


def test_what_another_core_had_started_counts() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.give(Resumed(Arrived("j1", "m", job=True, **ONE), attempt=1, node="n"))
    assert rig.refuse("a", **ONE).code == "user_queue_full"
    rig.wait("j2", job=True, **ONE)
    assert rig.finish("j1") == ["j2"]


def test_live_calls_that_pause_are_not_kept_by_prompts_that_wait_for_them() -> None:
    rig = Rig(key_limits={"k": KeyLimits(requests_per_minute=1)}, wait_s_max=1000.0)
    rig.node(slots=5)
    rig.start("a", **ONE)
    rig.finish("a")
    assert rig.wait("p", patient=True, **ONE).reason == "rate"
    assert rig.wait("b", **ONE).reason == "rate"
    assert rig.describe("p").reason == "key"
    assert Rig.started(rig.tick(at_s=60.0)) == ["b"]
    assert rig.finish("b") == []
    assert Rig.started(rig.tick(at_s=120.0)) == ["p"]


def test_limits_that_come_and_go_leave_the_cap_as_it_is() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.start("j1", job=True, **ONE)
    rig.wait("j2", job=True, **ONE)
    for limits in ({"k": KeyLimits(requests_per_minute=60)}, {}):
        rig.give(OptionsChanged(Options(key_limits=limits)))
        assert rig.refuse("a", **ONE).code == "user_queue_full"
    assert rig.finish("j1") == ["j2"]


KINDS = st.sampled_from(("live", "job", "prompt"))
STEPS = st.lists(
    st.one_of(
        st.tuples(KINDS, st.sampled_from(("m1", "m2")), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(("done", "back", "gone"))),
    ),
    max_size=40,
)


class Count:
    """What of one key is where, by what the core said."""

    def __init__(self) -> None:
        self.rig = Rig(wait_s_max=1e6)
        self.rig.node("n1", 2, "m1")
        self.rig.node("n2", 1, "m1", "m2")
        self.kinds: dict[str, str] = {}
        self.models: dict[str, str] = {}
        self.waiting: dict[str, None] = {}
        self.running: dict[str, str] = {}

    def arrive(self, kind: str, model: str, capped: bool) -> None:
        name = f"{'k' if capped else 'o'}{len(self.kinds)}"
        self.kinds[name], self.models[name] = kind, model
        more = TWO if capped else {}
        self.take(
            self.rig.give_arrival(name, model, job=kind == "job", patient=kind == "prompt", **more)
        )

    def end(self, place: int, how: str) -> None:
        if not self.running:
            return
        name = list(self.running)[place % len(self.running)]
        del self.running[name]
        if how == "done":
            self.take(self.rig.give_end(name))
        elif how == "back":
            self.waiting[name] = None
            self.take(self.rig.come_back(name, exclude=False))
        else:
            self.take(self.rig.cancel(name))

    def take(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Route):
                self.waiting.pop(action.id, None)
                self.running[action.id] = action.node
            elif isinstance(action, Wait):
                self.waiting[action.id] = None
            elif isinstance(action, Reject):
                self.waiting.pop(action.id, None)
        self.check()

    def check(self) -> None:
        mine = [name for name in (*self.waiting, *self.running) if name[0] == "k"]
        held = [n for n in mine if self.kinds[n] == "live" or n in self.running]
        assert len(held) <= 2, f"{held} count of one key"
        calls = [n for n in mine if n in self.waiting and self.kinds[n] != "job"]
        free = {"n1": 2, "n2": 1}
        for node in self.running.values():
            free[node] -= 1
        for name in self.waiting:
            usable = free["n2"] or (free["n1"] and self.models[name] == "m1")
            gated = name[0] == "k" and self.kinds[name] != "live"
            full = len(held) >= 2 or (self.kinds[name] == "job" and calls)
            assert not usable or (gated and full), f"{name} waits, but could start"


# What came back starts from a line that is no more while others stand in a new one.
CAME_BACK: Sequence[tuple[str, Any, Any]] = [
    *[("job", "m1", True)] * 2, *[("prompt", "m1", True)] * 2, ("live", "m1", False),
    ("end", 1, "back"), ("end", 1, "done"), ("live", "m2", False),
    ("end", 0, "back"), ("end", 0, "done"), *[("job", "m1", True)] * 2,
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(STEPS)
@example(list(CAME_BACK))
def test_no_more_of_a_key_is_held_than_may_be_and_none_waits_where_there_is_room(
    steps: list[tuple[str, Any, Any]],
) -> None:
    count = Count()
    for kind, first, second in steps:
        if kind == "end":
            count.end(first, second)
        else:
            count.arrive(kind, first, second)
    while count.running:
        count.end(0, "done")
    assert not count.waiting
    picture = count.rig.look()
    assert (picture.running, picture.running_jobs) == (0, 0)
