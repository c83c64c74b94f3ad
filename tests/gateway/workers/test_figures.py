"""What the leader knows of the other workers' counters and gauges."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, cast

from forebay.core import Arrived
from forebay.gateway.dashboard import (
    FINE_BOUNDS_S,
    RequestTimes,
    page_figures,
    with_first_tokens,
    with_waits,
)
from forebay.gateway.hot.accounting import Accounting, Histogram
from forebay.gateway.hot.ended import EndedBatch, EndedRequest
from forebay.gateway.hot.ended_stream import EndedStream
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


class EndedRequests:
    """Hands batches to its reader when told: an `EndedStream` by its shape."""

    reader: Callable[[EndedBatch], None]

    def read_by(self, reader: Callable[[EndedBatch], None]) -> None:
        self.reader = reader

    def end(self, *requests: EndedRequest) -> None:
        self.reader(EndedBatch(list(requests), FakeClock().utc(), 0.0))


def ended(priority: str, waited_s: float, outcome: str = "served") -> EndedRequest:
    arrival = Arrived("1", "m", priority=priority, stream=True)
    made = EndedRequest("/", outcome, arrival, 99.0, arrived_s=1.0, waited_s=waited_s)
    made.first_byte_s = 1.0 + waited_s
    return made


def test_the_times_of_all_workers_are_added_by_priority_and_bucket() -> None:
    stream = EndedRequests()
    accounting = Accounting(lambda: 0.0, EndedStream(FakeClock()))
    accounting.waits["low", "served"] = Histogram()
    accounting.waits["low", "served"].add(0.0)
    times = RequestTimes(accounting, cast("Any", stream))
    stream.end(ended("high", 2.0), ended("low", 7.0), ended("low", 7.0, "bad_request"))
    figures = page_figures(accounting, times, 0)
    assert len([name for name in figures if name.startswith("waits ")]) == 3, (
        "what is 0 is not sent"
    )
    waits = with_waits(times.waits(), figures)
    two, seven = (bisect_left(FINE_BOUNDS_S, seconds) for seconds in (2.0, 7.0))
    assert {name: sum(counts) for name, counts in waits.items()} == {"high": 2, "low": 4}
    assert (waits["high"][two], waits["low"][0], waits["low"][seven]) == (2, 2, 2)
    first = with_first_tokens(times.first_tokens(), figures)
    assert (first[two], first[seven]) == (2, 4)
