"""Engines in virtual time with more work than they can take, to see how many slots are found.

An engine is what it does with n requests at once: it slows each of them down (`slowdown`), lets
some wait inside (`runs`), or refuses (`admits`). All requests share its speed, as in one batch.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.nodes.slot_limit import Sample, SlotLimit

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "llama"
ENDLESS = 10**9
BEFORE_FIRST_TOKEN_S = 0.05
PROMPT_TOKEN_S = 0.0002
OUTPUT_TOKEN_S = 0.02
REST_S = 1.0
"""How long a node is left alone that has refused."""


@dataclass(frozen=True)
class Engine:
    """How it behaves with n requests at once."""

    slowdown: Callable[[int], float] = lambda n: 1.0
    runs: int = ENDLESS
    """More wait inside, first come, first served."""
    admits: int = ENDLESS
    """More are refused."""


def flat(knee: int) -> Engine:
    """Return one that has room for so many, and then shares its speed."""
    return Engine(lambda n: max(1.0, n / knee))


def thrashing(knee: int) -> Engine:
    """Return one that gets slower altogether beyond the knee."""
    return Engine(lambda n: max(1.0, (n / knee) ** 1.5))


def soft(knee: int) -> Engine:
    """Return one that slows down from the first request on, and gains less and less."""
    return Engine(lambda n: 1.0 + n / knee)


def queueing(knee: int) -> Engine:
    """Return one with a line of its own, as vLLM has."""
    return Engine(runs=knee)


def refusing(knee: int) -> Engine:
    return Engine(admits=knee)


@dataclass
class Request:
    """What is asked, and when things happened to it."""

    prompt_tokens: int
    output_tokens: int
    luck: float
    """Some take longer than others of their size."""
    started_s: float = 0.0
    first_byte_s: float = 0.0
    ended_s: float = 0.0
    slots: int = 0
    """When it ended."""

    def until_first_byte_s(self) -> float:
        return self.luck * (BEFORE_FIRST_TOKEN_S + PROMPT_TOKEN_S * self.prompt_tokens)

    def after_first_byte_s(self) -> float:
        return self.luck * OUTPUT_TOKEN_S * self.output_tokens


class Run:
    """A backlog that never ends, sent through a limit: a `SlotLimit`, or a fixed number."""

    def __init__(self, limit: SlotLimit | int, seed: int) -> None:
        self._limit = limit
        self._random = random.Random(seed)
        self._now_s = self._work_s = 0.0  # time, and what each request had of the engine's so far
        self._phases: list[tuple[float, int, Request]] = []  # the ends of phases, by work
        self._inside: deque[Request] = deque()
        self._in_flight = self._count = 0
        self._rests_until_s = 0.0
        self.ended: list[Request] = []

    def slots(self) -> int:
        return self._limit if isinstance(self._limit, int) else self._limit.slots

    def serve(self, engine: Engine, requests: int) -> list[Request]:
        """Go on until so many more have been answered; return those."""
        first = len(self.ended)
        while len(self.ended) < first + requests:
            self._start(engine)
            self._step(engine)
        return self.ended[first:]

    def _start(self, engine: Engine) -> None:
        while self._in_flight < self.slots() and self._now_s >= self._rests_until_s:
            if self._in_flight >= engine.admits:
                self._refuse(self.slots() - self._in_flight)
                return
            request = Request(
                int(self._random.lognormvariate(6.0, 1.0)) + 1,
                int(self._random.lognormvariate(4.5, 0.7)) + 1,
                self._random.lognormvariate(0.0, 0.1),
                self._now_s,
            )
            self._in_flight += 1
            self._inside.append(request)
            self._run(engine)

    def _refuse(self, count: int) -> None:
        """Refuse all that were sent before the first refusal was heard of."""
        self._rests_until_s = self._now_s + REST_S
        if isinstance(self._limit, SlotLimit):
            for _ in range(count):
                self._limit.note_refused(self._now_s)

    def _run(self, engine: Engine) -> None:
        while self._inside and len(self._phases) < engine.runs:
            request = self._inside.popleft()
            self._until(request, request.until_first_byte_s())

    def _until(self, request: Request, work_s: float) -> None:
        self._count += 1
        heapq.heappush(self._phases, (self._work_s + work_s, self._count, request))

    def _step(self, engine: Engine) -> None:
        if not self._phases:
            self._now_s = self._rests_until_s
            return
        slowdown = engine.slowdown(len(self._phases))
        end_s = self._now_s + (self._phases[0][0] - self._work_s) * slowdown
        if self._now_s < self._rests_until_s < end_s:
            self._work_s += (self._rests_until_s - self._now_s) / slowdown
            self._now_s = self._rests_until_s
            return
        self._now_s = end_s
        self._work_s, _, request = heapq.heappop(self._phases)
        if request.first_byte_s:
            self._end(request)
            self._run(engine)
            return
        request.first_byte_s = end_s
        self._until(request, request.after_first_byte_s())
        if isinstance(self._limit, SlotLimit):
            waited_s = end_s - request.started_s
            self._limit.note_first_byte(
                MODEL, request.prompt_tokens, waited_s, request.started_s, end_s
            )

    def _end(self, request: Request) -> None:
        request.ended_s, request.slots = self._now_s, self.slots()
        is_full = self._in_flight >= request.slots
        self._in_flight -= 1
        self.ended.append(request)
        if is_full and isinstance(self._limit, SlotLimit):
            sample = Sample(
                MODEL,
                request.prompt_tokens,
                request.output_tokens,
                request.first_byte_s - request.started_s,
                self._now_s - request.first_byte_s,
            )
            self._limit.note(sample, request.started_s, self._now_s)


@dataclass(frozen=True)
class Figures:
    """What a stretch of answers was like."""

    throughput: float
    first_byte_p95_s: float


def figures(requests: list[Request]) -> Figures:
    """Return the work done per second, and the time to the first byte of 95 in 100."""
    took_s = requests[-1].ended_s - requests[0].ended_s
    work_s = sum(one.until_first_byte_s() + one.after_first_byte_s() for one in requests[1:])
    began_s = requests[0].ended_s
    waits_s = sorted(
        one.first_byte_s - one.started_s for one in requests if one.started_s >= began_s
    )
    return Figures(work_s / took_s, waits_s[int(0.95 * len(waits_s))])


NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


def best_number(engine: Engine, seed: int, requests: int = 600) -> int:
    """Return the smallest number that does as well as any, give or take 3 in 100."""
    found = {}
    for number in NUMBERS:
        run = Run(number, seed)
        run.serve(engine, 2 * number)
        found[number] = figures(run.serve(engine, requests)).throughput
    most = max(found.values())
    return min(number for number, one in found.items() if one >= 0.97 * most)
