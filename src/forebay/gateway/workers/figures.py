"""The sum of all workers' counters, at the leader.

Each worker counts for itself, in plain integers. The leader asks the others twice a second and
whenever someone reads the metrics, and adds up. Counters must not fall when a worker dies: what it
said last is kept. For the same reason the leader's own counters travel with its question, so that
whoever leads next goes on from there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from forebay.gateway.workers.asides import CountAsked, Counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.clock import TimerHandle, Timers
    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.workers.asides import Asides

EVERY_S: Final = 0.5
"""How often the leader asks: as often as the page draws."""
ANSWER_S: Final = 0.25
"""How long the others may take to answer someone who waits for the metrics."""


class Figures:
    """The counters and gauges of the other workers, by sample."""

    def __init__(
        self,
        store: WorkerStore,
        asides: Asides,
        own: Callable[[], tuple[dict[str, float], dict[str, float]]],
        clock: Timers,
    ) -> None:
        self._store = store
        self._asides = asides
        self._own = own
        self._clock = clock
        self._past: dict[str, float] = {}  # counters of workers that are gone
        self._counted: dict[str, Counted] = {}  # by worker
        self._number = 0
        self._answered = asyncio.Event()
        self._timer: TimerHandle | None = None
        asides.take(CountAsked, self._tell)
        asides.take(Counted, self._take)

    def lead(self) -> None:
        """Ask the others from now on."""
        if self._timer is None:
            self._ask_again()

    def stop(self) -> None:
        """Ask no more; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()

    def counters(self) -> dict[str, float]:
        """Return what the others have counted, as far as is known."""
        self._bury()
        return added(self._past, *(one.counters for one in self._counted.values()))

    async def gathered(self) -> dict[str, float]:
        """Ask the others now; return what they have counted and what they hold."""
        self._ask()
        try:
            async with asyncio.timeout(ANSWER_S):
                while not self._is_complete():
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            pass  # with what was known before: one of them is busy, or dying
        counters = self.counters()  # forgets those that have gone meanwhile, and what they hold
        return added(counters, *(one.gauges for one in self._counted.values()))

    def _is_complete(self) -> bool:
        known = self._counted
        return all(
            member in known and known[member].number == self._number
            for member in self._store.followers
        )

    def _ask(self) -> None:
        self._number += 1
        counters, _ = self._own()
        self._bury()
        self._asides.send(CountAsked(self._number, added(self._past, counters)))

    def _ask_again(self) -> None:
        self._ask()
        self._timer = self._clock.call_at(self._clock.monotonic_s() + EVERY_S, self._ask_again)

    def _bury(self) -> None:
        """Keep what those have counted that are gone."""
        for member in set(self._counted) - self._store.members:
            self._past = added(self._past, self._counted.pop(member).counters)

    def _tell(self, _: str, asked: CountAsked) -> None:
        self._past = asked.counted  # should this one lead next
        self._asides.send(Counted(asked.number, *self._own()))

    def _take(self, member: str, counted: Counted) -> None:
        self._counted[member] = counted
        self._answered.set()


def added(*figures: Mapping[str, float]) -> dict[str, float]:
    """Return the sums.

    >>> added({"a": 1, "b": 2}, {"b": 3})
    {'a': 1, 'b': 5}
    """
    total: dict[str, float] = {}
    for some in figures:
        for name, value in some.items():
            total[name] = total.get(name, 0) + value
    return total
