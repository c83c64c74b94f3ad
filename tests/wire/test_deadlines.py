"""Many deadlines of one length: each falls due at its own time, and one timer is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.testing import FakeClock
from forebay.wire.deadlines import Deadlines

if TYPE_CHECKING:
    from forebay.testing.clock import FakeTimer


class Rig:
    """Deadlines on a fake clock, and who expired when."""

    def __init__(self, limit_s: float = 10.0, *, again: bool = False) -> None:
        self.clock = FakeClock()
        self.late: list[tuple[float, str]] = []
        self.again = again
        self.deadlines = Deadlines(limit_s, self.expired, self.clock)

    def expired(self, member: str) -> None:
        self.late.append((self.clock.monotonic_s(), member))
        if self.again:
            self.deadlines.add(member)


def test_each_member_expires_at_its_own_time() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.clock.advance(4.0)
    rig.deadlines.add("b")
    rig.clock.advance(20.0)
    assert rig.late == [(10.0, "a"), (14.0, "b")]
    assert len(rig.deadlines) == 0


def test_one_that_is_added_anew_starts_anew() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.clock.advance(9.0)
    rig.deadlines.add("a")
    rig.clock.advance(9.0)
    assert rig.late == []
    rig.clock.advance(1.0)
    assert rig.late == [(19.0, "a")]


def test_one_that_leaves_never_expires() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.deadlines.discard("a")
    rig.deadlines.discard("nobody")
    rig.clock.advance(100.0)
    assert rig.late == []


def test_one_that_comes_again_while_it_expires_does_not_delay_the_others() -> None:
    rig = Rig(again=True)
    rig.deadlines.add("a")
    rig.clock.advance(5.0)
    rig.deadlines.add("b")
    rig.clock.advance(20.0)
    assert rig.late == [(10.0, "a"), (15.0, "b"), (20.0, "a"), (25.0, "b")]


def test_a_limit_of_zero_is_never() -> None:
    rig = Rig(0.0)
    rig.deadlines.add("a")
    rig.clock.advance(1000.0)
    assert (rig.late, rig.clock.next_timer_s()) == ([], None)


def test_another_limit_counts_from_when_each_came_in_and_the_same_one_changes_nothing() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.clock.advance(8.0)
    rig.deadlines.change(10.0)
    rig.clock.advance(2.0)
    assert rig.late == [(10.0, "a")]
    rig.deadlines.add("b")
    rig.clock.advance(1.0)
    rig.deadlines.change(3.0)
    rig.clock.advance(3.0)
    assert rig.late[1:] == [(13.0, "b")]


def test_a_limit_that_becomes_zero_lets_everyone_go() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.deadlines.change(0.0)
    rig.clock.advance(100.0)
    assert rig.late == []


def test_who_is_forgotten_does_not_expire_and_leaves_no_timer() -> None:
    rig = Rig()
    rig.deadlines.add("a")
    rig.deadlines.clear()
    assert rig.clock.next_timer_s() is None
    rig.deadlines.add("b")
    rig.clock.advance(10.0)
    assert rig.late == [(10.0, "b")]


def test_an_error_of_one_does_not_hold_up_the_next() -> None:
    clock, late = FakeClock(), []

    def expired(member: str) -> None:
        if member == "bad":
            raise RuntimeError(member)
        late.append(member)

    deadlines = Deadlines(10.0, expired, clock)
    deadlines.add("bad")
    deadlines.add("good")
    with pytest.raises(RuntimeError):
        clock.advance(10.0)
    clock.advance(0.0)
    assert late == ["good"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.sampled_from(["add", "discard"]), st.floats(0.0, 6.0)
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_it_does_what_one_timer_each_would_do(
    steps: list[tuple[str, str, float]], again: bool
) -> None:
    rig, model = Rig(5.0, again=again), FakeClock()
    expected: list[tuple[float, str]] = []
    timers: dict[str, FakeTimer] = {}

    def due(member: str) -> None:
        expected.append((model.monotonic_s(), member))
        del timers[member]
        if again:
            start(member)

    def start(member: str) -> None:
        stop(member)
        timers[member] = model.call_at(model.monotonic_s() + 5.0, lambda: due(member))

    def stop(member: str) -> None:
        if member in timers:
            timers.pop(member).cancel()

    for member, what, pause_s in steps:
        getattr(rig.deadlines, what)(member)
        (start if what == "add" else stop)(member)
        rig.clock.advance(pause_s)
        model.advance(pause_s)
    assert rig.late == expected
