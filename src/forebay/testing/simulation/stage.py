"""What the actors of a simulation share: virtual time, a way to post, the open requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.core.events import Event
    from forebay.testing.clock import FakeClock, FakeTimer
    from forebay.testing.simulation.callers import SentRequest


@dataclass(slots=True)
class SimulationStage:
    """One per simulation."""

    clock: FakeClock
    post: Callable[[Event], None]
    asks: dict[str, SentRequest] = field(default_factory=dict)
    """What has been sent and is not over, by id."""
    numbers: Iterator[int] = field(default_factory=count)
    """Makes ids unique."""

    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def after(self, delay_s: float, action: Callable[[], None]) -> FakeTimer:
        return self.clock.call_at(self.clock.monotonic_s() + delay_s, action)
