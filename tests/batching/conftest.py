"""What the tests of waiting look at: who has fallen asleep, and who was woken."""

from threading import Semaphore

import pytest

from forebay.batching.queue import Waiter

from .threads import JOIN_S


class Naps:
    """Counts the threads that fall asleep in a queue, and the times anyone is woken."""

    def __init__(self) -> None:
        self._fell_asleep = Semaphore(0)
        self.taken = 0
        self.woken = 0

    def fall_asleep(self) -> None:
        self.taken += 1
        self._fell_asleep.release()

    def wait_for(self, count: int) -> None:
        """Return once so many more threads can be woken: they stand among the sleepers."""
        for _ in range(count):
            assert self._fell_asleep.acquire(timeout=JOIN_S), "nobody fell asleep"


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    naps = Naps()
    real_wait, real_wake = Waiter.wait, Waiter.wake

    def wait(waiter: Waiter, timeout_s: float | None) -> bool:
        naps.fall_asleep()
        return real_wait(waiter, timeout_s)

    def wake(waiter: Waiter) -> None:
        naps.woken += 1
        real_wake(waiter)

    monkeypatch.setattr(Waiter, "wait", wait)
    monkeypatch.setattr(Waiter, "wake", wake)
    return naps
