"""One thing after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.coordination.serial_executor import SerialExecutor
from forebay.core import Abort, Action
from forebay.testing import FakeClock

Step = Callable[[float], list[Action]]


class Log:
    """What was performed; may do more on the way."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.clock = FakeClock()
        self.due_s: float | None = None
        self.executor: SerialExecutor[Step] = SerialExecutor(
            lambda step, now_s: step(now_s), self.perform, self.clock, lambda: self.due_s, self.tick
        )

    def perform(self, action: Action) -> None:
        assert isinstance(action, Abort)
        self.performed.append(action.id)
        if action.id == "more":
            self.executor.submit(lambda _: says("then"))
        if action.id == "stop":
            self.executor.stop()
        if action.id == "bad":
            raise ValueError(action.id)

    def tick(self, now_s: float) -> list[Action]:
        self.due_s = None
        return says(f"due at {now_s}")


def says(*names: str) -> list[Action]:
    return [Abort(name, "") for name in names]


def test_a_step_within_a_step_comes_after_it() -> None:
    log = Log()
    log.executor.submit(lambda _: says("more", "last"))
    assert log.performed == ["more", "last", "then"]


def test_steps_hear_the_time_and_what_is_due_is_done_then() -> None:
    log = Log()

    def step(now_s: float) -> list[Action]:
        log.due_s = now_s + 5.0
        return []

    log.clock.advance(2.0)
    log.executor.submit(step)
    log.clock.advance(4.9)
    assert log.performed == []
    log.clock.advance(1.0)
    assert log.performed == ["due at 7.0"]
    assert log.clock.next_timer_s() is None


def test_what_raises_keeps_nothing_else_from_being_performed() -> None:
    log = Log()

    def wrong(_: float) -> list[Action]:
        raise ValueError("step")

    def both(_: float) -> list[Action]:
        log.executor.submit(wrong)
        log.executor.submit(lambda _: says("after"))
        return says("bad", "next")

    with pytest.raises(ExceptionGroup) as caught:
        log.executor.submit(both)
    assert [str(error) for error in caught.value.exceptions] == ["bad", "step"]
    assert log.performed == ["bad", "next", "after"]
    log.executor.submit(lambda _: says("again"))
    assert log.performed[-1] == "again"


def test_nothing_is_performed_after_it_was_stopped() -> None:
    log = Log()

    def never(_: float) -> list[Action]:
        pytest.fail("a step is taken after all was stopped")

    def both(_: float) -> list[Action]:
        log.executor.submit(never)
        log.due_s = 1.0
        return says("more", "stop", "never")

    log.executor.submit(both)
    assert log.performed == ["more", "stop"]
    log.executor.submit(lambda _: says("never"))
    log.clock.advance(2.0)
    assert log.performed == ["more", "stop"]
