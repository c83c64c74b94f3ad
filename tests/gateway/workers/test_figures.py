"""What the leader knows of the other workers' counters and gauges."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from forebay.gateway.workers.asides import Counted
from forebay.gateway.workers.figures import Figures
from forebay.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Others:
    """The other workers, and the way to them: a `WorkerStore` and an `Asides` by its shape."""

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.followers: set[str] = set()
        self._takers: dict[type, Callable[[str, Any], None]] = {}

    def take(self, kind: type, taker: Callable[[str, Any], None]) -> None:
        self._takers[kind] = taker

    def send(self, said: object) -> None: ...

    def say(self, member: str, counted: Counted) -> None:
        self._takers[Counted](member, counted)


async def test_of_a_worker_that_goes_while_others_are_asked_the_counters_stay_alone() -> None:
    others = Others()
    figures = Figures(cast("Any", others), cast("Any", others), lambda: ({}, {}), FakeClock())
    others.members = others.followers = {"w1", "w2"}
    gathered = asyncio.create_task(figures.gathered())
    await asyncio.sleep(0)
    others.say("w1", Counted(1, {"served": 5}, {"open": 2}))
    others.members = others.followers = {"w2"}
    others.say("w2", Counted(1, {"served": 6}, {"open": 3}))
    assert await gathered == {"served": 11, "open": 3}
