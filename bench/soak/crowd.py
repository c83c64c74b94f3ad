"""Arrivals: who comes, when, and that nobody is forgotten at the end."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, TypeAlias

from bench.soak import errands, visits
from bench.soak.visits import Visitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.soak.tally import Tally

Visit: TypeAlias = "Callable[[Visitor], Awaitable[None]]"

MIX: dict[Visit, float] = {
    visits.whole: 50,
    visits.several: 10,
    visits.leaving_early: 8,
    visits.cancelled_by_id: 3,
    visits.leaving_a_stream: 8,
    visits.slow_reader: 1,
    visits.large_body: 0.5,
    visits.wrong: 6,
    visits.pipelined: 5,
    errands.job: 3,
    errands.batch: 0.3,
    errands.session: 1.5,
    errands.look: 3,
    errands.watch: 0.5,
}
"""Shares of the visits; a visit is one to ten requests, mostly one."""
VISITS_MAX = 250
"""More at once are not begun: the soak must not become an overload by itself."""
BURST_EVERY_S, BURST = 60.0, 60
"""So that the queue fills and overflows now and then."""


class Crowd:
    """Visits at random moments, each by chances of its own: one seed, one plan."""

    def __init__(self, port: int, seed: int, rate: float, tally: Tally) -> None:
        self._port = port
        self._seed = seed
        self._draw = random.Random(f"arrivals {seed}")
        self._rate = rate
        self._tally = tally
        self._visits: set[asyncio.Task[None]] = set()
        self._number = 0

    @property
    def present(self) -> int:
        return len(self._visits)

    async def come(self, seconds: float) -> None:
        """Let clients arrive for that long; returns when no more come, not when all have left."""
        loop = asyncio.get_running_loop()
        end_s, burst_s = loop.time() + seconds, loop.time() + BURST_EVERY_S / 2
        while loop.time() < end_s:
            await asyncio.sleep(self._draw.expovariate(self._rate))
            self._begin()
            if loop.time() > burst_s:
                burst_s += BURST_EVERY_S
                for _ in range(BURST):
                    self._begin(visits.whole)

    async def leave(self, limit_s: float) -> None:
        """Wait until all have left; who stays longer is made to, which is a fault."""
        if not self._visits:
            return
        _, late = await asyncio.wait(self._visits, timeout=limit_s)
        for task in late:
            task.cancel()
            self._tally.fault(f"{task.get_name()} had no answer {limit_s:.0f} s after the load")
        await asyncio.gather(*late, return_exceptions=True)

    def _begin(self, visit: Visit | None = None) -> None:
        if len(self._visits) >= VISITS_MAX:
            self._tally.outcomes["not begun"] += 1
            return
        self._number += 1
        draw = random.Random(f"{self._seed} {self._number}")
        visit = visit or draw.choices(list(MIX), list(MIX.values()))[0]
        visitor = Visitor(self._port, draw, self._number, self._tally)
        task = asyncio.create_task(self._run(visit, visitor), name=visit.__name__)
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _run(self, visit: Visit, visitor: Visitor) -> None:
        name = visit.__name__
        try:
            await visit(visitor)
        except AssertionError as error:  # the client's patience ended, or the answer is no HTTP
            self._tally.fault(f"{name}: {error}")
        except (EOFError, OSError) as error:
            self._tally.left(name, type(error).__name__)
        except Exception as error:  # an answer that we cannot read
            self._tally.fault(f"{name}: {error!r}")
