"""Public test doubles: a clock you control, and a simulated cluster around the real scheduler."""

from forebay.testing.clock import FakeClock

__all__ = ["FakeClock"]
