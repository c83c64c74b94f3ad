"""A client that polls a full queue against one that waits, in virtual time.

Once a minute sixty requests come within three seconds, on top of a steady load that leaves little
idle, and the queue has room for forty. Who finds none asks again within `RETRY_S`, again and again.
What it loses is told by the same requests in a queue that has room for all: there it would wait.
"""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from statistics import mean
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from forebay.core import (
    Arrived,
    Finished,
    NodeChanged,
    Options,
    Reject,
    Route,
    Scheduler,
    retry_delay_s,
)

if TYPE_CHECKING:
    from forebay.core import Action
    from harness.traces.replay import Fairness

SLOTS = 4
SERVICE_S = 1.0
BUSY_PER_S, QUIET_PER_S = 20.0, 3.0
BUSY_S, MINUTE_S = 3.0, 60.0
MINUTES = 25
MAX_SIZE = 40
RETRY_S = 4.0
"""Shorter than most `Retry-After` here; who is told to come sooner does."""


class Crowd:
    """Plays the clients around a scheduler; `returns` says whether they send the same again."""

    def __init__(
        self, options: Options, *, returns: bool = True, pause_s_max: float = RETRY_S
    ) -> None:
        self._core = Scheduler(options)
        self._core.handle(NodeChanged("gpu", SLOTS, ("m",)), 0.0)
        self._returns = returns
        self._pause_s_max = pause_s_max
        self._jitter = Random("jitter")
        self._numbers = count()
        self._due: list[tuple[float, int, Arrived | Finished]] = []
        self._arrivals: dict[str, Arrived] = {}
        self._first_s: dict[str, float] = {}
        self._service_s: dict[str, float] = {}
        self.waited_s: dict[str, float] = {}
        """From the first attempt to the start, by request."""
        self.pauses_s: dict[str, list[float]] = {}
        """Between attempts, of those that found no room at first."""

    def play(self) -> Crowd:
        self._draw(Random("arrivals"))
        while self._due:
            now_s, _, event = heappop(self._due)
            for action in self._core.handle(event, now_s):
                self._perform(action, now_s)
        return self

    def _draw(self, random: Random) -> None:
        at_s = 0.0
        while at_s < MINUTES * MINUTE_S:
            at_s += random.expovariate(BUSY_PER_S if at_s % MINUTE_S < BUSY_S else QUIET_PER_S)
            name = f"r{len(self._arrivals)}"
            self._arrivals[name] = Arrived(name, "m", user=name, digest=len(self._arrivals))
            self._first_s[name] = at_s
            self._service_s[name] = random.expovariate(1 / SERVICE_S)
            self._plan(at_s, self._arrivals[name])

    def _plan(self, at_s: float, event: Arrived | Finished) -> None:
        heappush(self._due, (at_s, next(self._numbers), event))

    def _perform(self, action: Action, now_s: float) -> None:
        if isinstance(action, Route):
            self.waited_s[action.id] = now_s - self._first_s[action.id]
            self._plan(now_s + self._service_s[action.id], Finished(action.id))
        elif isinstance(action, Reject):
            told_s = retry_delay_s(action.retry_after_s, self._jitter.uniform(-1.0, 1.0))
            pause_s = min(self._pause_s_max, told_s)
            self.pauses_s.setdefault(action.id, []).append(pause_s)
            again = self._arrivals[action.id]
            if not self._returns:
                again = replace(again, digest=next(self._numbers))
            self._plan(now_s + pause_s, again)


@cache
def waiting_crowd(fairness: Fairness) -> Crowd:
    """Play them where all can wait; both tests compare with it."""
    crowd = Crowd(Options(max_size=1_000_000, wait_s_max=1e9, fairness=fairness)).play()
    assert not crowd.pauses_s
    return crowd


def lost_s(options: Options, *, returns: bool, pause_s_max: float = RETRY_S) -> float:
    """Return how much longer pollers wait, on average, than where they can wait in the queue."""
    polling = Crowd(options, returns=returns, pause_s_max=pause_s_max).play()
    waiting = waiting_crowd(options.fairness)
    assert len(polling.pauses_s) > 200
    assert polling.waited_s.keys() == waiting.waited_s.keys()
    return mean(polling.waited_s[name] - waiting.waited_s[name] for name in polling.pauses_s)


FAIRNESS = [Options(max_size=MAX_SIZE, wait_s_max=1e9, fairness=f) for f in ("fifo", "round_robin")]


@pytest.mark.parametrize("options", FAIRNESS, ids=lambda options: options.fairness)
def test_who_polls_with_the_same_body_waits_as_long_as_who_waits(options: Options) -> None:
    assert lost_s(options, returns=True) < RETRY_S / 4


@pytest.mark.parametrize("options", FAIRNESS, ids=lambda options: options.fairness)
def test_who_comes_back_when_it_was_told_to_loses_as_little(options: Options) -> None:
    """Told each time is how long a newcomer waits, or what is left until its own turn."""
    assert lost_s(options, returns=True, pause_s_max=inf) < RETRY_S / 4


@pytest.mark.parametrize("options", FAIRNESS, ids=lambda options: options.fairness)
def test_who_polls_with_another_loses_about_the_time_between_attempts(options: Options) -> None:
    """The control: were numbers not kept, the test above would fail."""
    assert lost_s(options, returns=False) > RETRY_S / 2
