"""One suite for every coordinator; the in-process one has a few promises of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.coordination import InProcess
from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Finished,
    NodeChanged,
    Options,
    Route,
    ShutDown,
)
from forebay.errors import InvariantBroken
from forebay.testing import FakeClock
from forebay.testing.contracts import GPU, CoordinatorContract, routed

if TYPE_CHECKING:
    from collections.abc import Callable


class InProcessHarness:
    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.on_action: Callable[[Action], None] = lambda action: None
        self.clock = FakeClock()
        self.coordinator = InProcess(Options(), self._perform, self.clock)

    def _perform(self, action: Action) -> None:
        self.actions.append(action)
        self.on_action(action)

    def post(self, event: Event) -> None:
        self.coordinator.post(event)

    def settle(self) -> None:
        pass  # everything has happened before `post` returned

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def stop(self) -> None:
        self.coordinator.stop()


class TestInProcess(CoordinatorContract):
    @pytest.fixture
    def harness(self) -> InProcessHarness:
        return InProcessHarness()

    def test_actions_are_performed_before_post_returns(self, harness: InProcessHarness) -> None:
        harness.post(GPU)
        harness.post(Arrived("a", "llama"))
        assert routed(harness) == ["a"]

    def test_post_from_a_callback_waits_its_turn(self, harness: InProcessHarness) -> None:
        depth: list[int] = []

        def finish_at_once(action: Action) -> None:
            if isinstance(action, Route):
                depth.append(1)
                harness.post(Finished(action.id))
                assert depth.pop() == 1
                assert not depth  # the callback for the next grant has not run inside this one

        harness.post(GPU)
        for name in "abc":
            harness.post(Arrived(name, "llama"))
        harness.on_action = finish_at_once
        harness.post(Finished("a"))
        assert routed(harness) == ["a", "b", "c"]

    def test_a_failing_callback_loses_no_other_action(self, harness: InProcessHarness) -> None:
        def fail_for_b(action: Action) -> None:
            if isinstance(action, Route) and action.id == "b":
                harness.post(Cancelled("b"))
                raise RuntimeError("the socket is gone")

        harness.on_action = fail_for_b
        harness.post(GPU)
        for name in "abc":
            harness.post(Arrived(name, "llama"))
        with pytest.raises(ExceptionGroup):
            harness.post(Finished("a"))
        assert routed(harness) == ["a", "b", "c"]

    def test_a_ticket_that_is_alive_already_is_the_callers_bug(
        self, harness: InProcessHarness
    ) -> None:
        harness.post(GPU)
        harness.post(Arrived("a", "llama"))
        with pytest.raises(ExceptionGroup) as caught:
            harness.post(Arrived("a", "llama"))
        assert caught.group_contains(InvariantBroken)
        assert routed(harness) == ["a"]

    def test_one_timer_is_armed_for_the_next_deadline(self, harness: InProcessHarness) -> None:
        harness.post(GPU)
        assert harness.clock.next_timer_s() is None
        for name in "abc":
            harness.post(Arrived(name, "llama"))
        assert harness.clock.next_timer_s() == 60.0
        harness.post(Cancelled("b"))
        harness.post(Cancelled("c"))
        assert harness.clock.next_timer_s() is None
        harness.post(NodeChanged("gpu1", slots=1, models=("llama",), state="offline"))
        assert harness.clock.next_timer_s() is None

    def test_stop_from_a_callback_ends_it_there(self, harness: InProcessHarness) -> None:
        harness.post(GPU)
        for name in "abc":
            harness.post(Arrived(name, "llama"))
        harness.on_action = lambda _: harness.stop()
        before = len(harness.actions)
        harness.post(ShutDown())
        assert len(harness.actions) == before + 1
