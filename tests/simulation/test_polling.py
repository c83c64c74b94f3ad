"""A client that polls a full queue against one that waits, in virtual time.

Once a minute sixty requests come within three seconds, on top of a steady load that leaves little
idle, and the queue has room for forty. Who finds none asks again within `RETRY_S`, again and again.
What it loses is told by the same requests in a queue that has room for all: there it would wait.
"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from functools import cache
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
    Scheduler,
    retry_delay_s,
)
from forebay.testing.simulation.engine import Engine, SentRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.core import Action, Event
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
    """The clients of a scheduler, and its node; `returns` says whether they send the same again."""

    def __init__(
        self, options: Options, *, returns: bool = True, pause_s_max: float = RETRY_S
    ) -> None:
        self._engine = Engine(Scheduler(options))
        self._engine.nodes["gpu"] = self
        self._engine.watchers.append(self._see)
        self._returns = returns
        self._pause_s_max = pause_s_max
        self._jitter = Random("jitter")
        self._first_s: dict[str, float] = {}
        self.waited_s: dict[str, float] = {}
        """From the first attempt to the start, by request."""
        self.pauses_s: dict[str, list[float]] = {}
        """Between attempts, of those that found no room at first."""

    def play(self) -> Crowd:
        self._engine.post(NodeChanged("gpu", SLOTS, ("m",)))
        random, at_s, numbers = Random("arrivals"), 0.0, self._engine.numbers
        while at_s < MINUTES * MINUTE_S:
            at_s += random.expovariate(BUSY_PER_S if at_s % MINUTE_S < BUSY_S else QUIET_PER_S)
            number = next(numbers)
            name = f"r{number}"
            self._first_s[name] = at_s
            service_s = random.expovariate(1 / SERVICE_S)
            arrived = Arrived(name, "m", user=name, digest=number)
            self._ask(at_s, SentRequest(arrived, service_s=service_s))
        self._engine.run()
        return self

    def _ask(self, after_s: float, sent: SentRequest) -> None:
        self._engine.after(after_s, lambda: self._engine.send(sent))

    def start(self, sent: SentRequest, attempt: int) -> None:
        name = sent.arrived.id
        self.waited_s[name] = self._engine.now_s() - self._first_s[name]
        self._engine.after(sent.service_s or 0.0, lambda: self._engine.post(Finished(name)))

    def stop(self, request_id: str) -> None:
        raise AssertionError("nobody leaves")

    def _see(self, event: Event, _: float, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Reject):
                told_s = retry_delay_s(action.retry_after_s, self._jitter.uniform(-1.0, 1.0))
                pause_s = min(self._pause_s_max, told_s)
                self.pauses_s.setdefault(action.id, []).append(pause_s)
                again = self._engine.open[action.id]
                if not self._returns:
                    digest = next(self._engine.numbers)
                    again = dataclass_replace(again, arrived=replace(again.arrived, digest=digest))
                self._ask(pause_s, again)


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
