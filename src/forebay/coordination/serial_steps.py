"""One thing after the other: steps that may cause further steps, and never inside each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from forebay.coordination.port import Perform
    from forebay.core import Action

Step: TypeAlias = Callable[[float], "list[Action]"]
"""Something to be done at a time; returns what is to be performed because of it."""


class Turns:
    """Takes steps, and performs what they lead to."""

    def __init__(self, perform: Perform, monotonic_s: Callable[[], float]) -> None:
        self._perform = perform
        self._monotonic_s = monotonic_s
        self._steps: deque[Step] = deque()
        self._busy = False
        self.stopped = False

    def take(self, step: Step) -> bool:
        """Take a step now, or after the one under way; False when that one goes on.

        A callback that raises does not keep the others from being performed, nor later steps
        from being taken: a lost action would be a lost slot. The errors come out at the end.
        """
        if self.stopped:
            return False
        self._steps.append(step)
        if self._busy:
            return False
        self._busy = True
        errors: list[Exception] = []
        try:
            while self._steps:
                self._take(self._steps.popleft(), errors)
        finally:
            self._busy = False
        if errors:
            raise ExceptionGroup("performing actions failed", errors)
        return True

    def stop(self) -> None:
        """Perform nothing any more."""
        self.stopped = True
        self._steps.clear()

    def _take(self, step: Step, errors: list[Exception]) -> None:
        try:
            actions = step(self._monotonic_s())
        except Exception as error:  # the step was wrong; others behind it must not suffer
            errors.append(error)
            return
        for action in actions:
            if self.stopped:  # by one of these callbacks
                return
            try:
                self._perform(action)
            except Exception as error:
                errors.append(error)
