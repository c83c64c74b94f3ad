"""One thing after the other."""

from __future__ import annotations

import pytest

from forebay.coordination.serial_steps import Turns
from forebay.core import Abort, Action

CLOCK_S = 5.0


class Log:
    """What was performed; may do more on the way."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.turns = Turns(self.perform, lambda: CLOCK_S)

    def perform(self, action: Action) -> None:
        assert isinstance(action, Abort)
        self.performed.append(action.id)
        if action.id == "more":
            assert not self.turns.take(lambda _: [Abort("then", "")])
        if action.id == "stop":
            self.turns.stop()
        if action.id == "bad":
            raise ValueError(action.id)


def says(*names: str) -> list[Action]:
    return [Abort(name, "") for name in names]


def test_a_step_within_a_step_comes_after_it() -> None:
    log = Log()
    assert log.turns.take(lambda _: says("more", "last"))
    assert log.performed == ["more", "last", "then"]


def test_steps_hear_the_time() -> None:
    seen: list[float] = []

    def step(now_s: float) -> list[Action]:
        seen.append(now_s)
        return []

    Log().turns.take(step)
    assert seen == [CLOCK_S]


def test_what_raises_keeps_nothing_else_from_being_performed() -> None:
    log = Log()

    def wrong(_: float) -> list[Action]:
        raise ValueError("step")

    def both(_: float) -> list[Action]:
        log.turns.take(wrong)
        log.turns.take(lambda _: says("after"))
        return says("bad", "next")

    with pytest.raises(ExceptionGroup) as caught:
        log.turns.take(both)
    assert [str(error) for error in caught.value.exceptions] == ["bad", "step"]
    assert log.performed == ["bad", "next", "after"]
    assert log.turns.take(lambda _: says("again"))
    assert log.performed[-1] == "again"


def test_nothing_is_performed_after_it_was_stopped() -> None:
    log = Log()

    def never(_: float) -> list[Action]:
        pytest.fail("a step is taken after all was stopped")

    def both(_: float) -> list[Action]:
        log.turns.take(never)
        return says("more", "stop", "never")

    log.turns.take(both)
    assert log.performed == ["more", "stop"]
    assert not log.turns.take(lambda _: says("never"))
    assert log.performed == ["more", "stop"]
