"""Engines in virtual time with more work than they can take, to see how many slots are found.

An engine is what it does with n requests at once: it slows each of them down (`slowdown`), lets
some wait inside (`runs`), or refuses (`admits`). All requests share its speed, as in one batch.
Requests come as an endless backlog, or as a trace says.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from forebay.core import (
    Arrived,
    Finished,
    NodeChanged,
    NodeRested,
    Observed,
    Options,
    Returned,
    Route,
    Scheduler,
    SlotsChanged,
    Snapshot,
    Ticked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from forebay.core import Event
    from forebay.core.events import SlotsKind

MODEL = "llama"
ENDLESS = 10**9
BEFORE_FIRST_TOKEN_S = 0.05
PROMPT_TOKEN_S = 0.0002
OUTPUT_TOKEN_S = 0.02
REST_S = 1.0
"""How long a node is left alone that has refused."""
BACKLOG = 1000
"""As many clients as this have always something to ask."""
USERS = 5
OPTIONS = Options(
    max_size=10**6, per_user_max=10**6, wait_s_max=1e9, aging_s=0.0, fairness="fifo",
)  # fmt: skip
PROBE_S = 5.0
"""How often an engine is asked how many wait inside."""


@dataclass(frozen=True)
class Engine:
    """How it behaves with n requests at once."""

    slowdown: Callable[[int], float] = lambda n: 1.0
    runs: int = ENDLESS
    """More wait inside, first come, first served."""
    reads: int = ENDLESS
    """Of those that run, so many read their prompts at once; the others wait for their turn."""
    admits: int = ENDLESS
    """More are refused."""
    prompt_slowdown: Callable[[int], float] | None = None
    """Of reading prompts, where it is not that of writing answers."""
    tells: bool = False
    """Whether it says how many wait inside."""


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


@dataclass(frozen=True)
class Load:
    """What is asked, and what that takes of an idle engine."""

    prompt: tuple[float, float] = (6.0, 1.0)
    """Tokens: the logarithm's mean and deviation; so for answers."""
    output: tuple[float, float] = (4.5, 0.7)
    luck: float = 0.1
    """Some take longer than others of their size: the logarithm's deviation."""
    base_s: float = BEFORE_FIRST_TOKEN_S
    prompt_token_s: float = PROMPT_TOKEN_S
    output_token_s: float = OUTPUT_TOKEN_S


LOAD = Load()


class Asked:
    """An endless backlog: the tokens and the luck of each request, drawn as they are needed."""

    def __init__(self, seed: int, load: Load) -> None:
        self._random = random.Random(seed)
        self._load = load
        self._drawn: list[tuple[int, int, float]] = []

    def __getitem__(self, number: int) -> tuple[int, int, float]:
        while len(self._drawn) <= number:
            load, draw = self._load, self._random.lognormvariate
            tokens = int(draw(*load.prompt)) + 1, int(draw(*load.output)) + 1
            self._drawn.append((*tokens, draw(0.0, load.luck)))
        return self._drawn[number]


@lru_cache(maxsize=8)
def asked(seed: int, load: Load) -> Asked:
    """Return the same for the same seed: many numbers of slots are tried on one backlog."""
    return Asked(seed, load)


@dataclass(slots=True)
class Request:
    """What is asked, and when things happened to it."""

    prompt_tokens: int
    output_tokens: int
    luck: float
    arrived_s: float = 0.0
    started_s: float = 0.0
    first_byte_s: float = 0.0
    ended_s: float = 0.0
    slots: int = 0
    """When it ended."""
    load: Load = LOAD
    id: str = ""

    def until_first_byte_s(self) -> float:
        return self.luck * (self.load.base_s + self.load.prompt_token_s * self.prompt_tokens)

    def after_first_byte_s(self) -> float:
        return self.luck * self.load.output_token_s * self.output_tokens


class Stage:
    """The requests that read their prompts, or those that write their answers."""

    def __init__(self) -> None:
        self.work_s = 0.0  # what each request had of the engine so far
        self._ends: list[tuple[float, int, Request]] = []  # by work
        self._count = 0

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, request: Request, work_s: float) -> None:
        self._count += 1
        heapq.heappush(self._ends, (self.work_s + work_s, self._count, request))

    def left_s(self) -> float:
        return self._ends[0][0] - self.work_s if self._ends else float(ENDLESS)

    def pop(self) -> Request:
        self.work_s, _, request = heapq.heappop(self._ends)
        return request


class Run:
    """Requests sent through a core, to one node whose slots are found, or are a fixed number.

    With `arrivals`, which are times and tokens, requests come when these say. Without, so many
    clients each send the next one as soon as they have an answer, a thousand unless said.
    """

    def __init__(
        self,
        slots: int,
        seed: int,
        load: Load = LOAD,
        arrivals: Iterator[tuple[float, int, int]] | None = None,
        clients: int = BACKLOG,
        *,
        finds: bool = False,
    ) -> None:
        self._core = Scheduler(OPTIONS)
        self.slots = slots
        self._finds = finds
        self.reasons: list[str] = []
        self._clients = clients
        self.sent_at_once = 0 if clients == BACKLOG or arrivals is not None else clients
        self._random = random.Random(seed)
        self._asked = asked(seed, load)
        self._load = load
        self._arrivals = arrivals
        self._next = next(arrivals, None) if arrivals is not None else None
        self._now_s = 0.0
        self._unread: deque[Request] = deque()
        self._reading, self._writing = Stage(), Stage()
        self._inside: deque[Request] = deque()
        self._waiting: dict[str, Request] = {}
        self.in_flight = 0
        self._probe_s = PROBE_S
        self._sent = 0
        self.started: list[Request] = []
        self.ended: list[Request] = []
        kind: SlotsKind = "found" if finds else "fixed"
        self._core.handle(NodeChanged("n", slots, (MODEL,), slots_kind=kind), 0.0)

    def told(self) -> int:
        """Return how many slots the core says that the node has."""
        (picture,) = self._core.handle(Observed(), self._now_s)
        assert isinstance(picture, Snapshot)
        return picture.nodes[0].slots

    def serve(self, engine: Engine, requests: int) -> list[Request]:
        """Go on until so many more have been answered, or all; return those."""
        first = len(self.ended)
        if self._arrivals is None:
            while self._sent < self._clients:
                self._ask(engine, *self._asked[self._sent])
        while len(self.ended) < first + requests and (
            self._arrivals is None or self._next or self._waiting or self.in_flight
        ):
            self._step(engine)
        return self.ended[first:]

    def _ask(self, engine: Engine, prompt: int, output: int, luck: float) -> None:
        request = Request(prompt, output, luck, self._now_s, load=self._load)
        request.id = str(self._sent)
        self._waiting[request.id] = request
        user = str(self._sent % USERS)
        self._sent += 1
        self._post(engine, Arrived(request.id, MODEL, prompt_tokens=prompt, user=user, stream=True))

    def _post(self, engine: Engine, event: Event) -> None:
        """Tell the core, and do what it decides; what that refuses is told after it."""
        refused: list[str] = []
        for action in self._core.handle(event, self._now_s):
            if isinstance(action, Route):
                if self.in_flight >= engine.admits:
                    refused.append(action.id)
                else:
                    self._start(engine, self._waiting.pop(action.id))
            elif isinstance(action, SlotsChanged):
                self.slots = action.slots
                self.reasons.append(f"{len(self.ended)}: {action.slots}, {action.reason}")
        for one in refused:
            self._post(engine, NodeRested("n", REST_S))
            self._post(engine, Returned(one, exclude=False, why="refused"))

    def _start(self, engine: Engine, request: Request) -> None:
        request.started_s = self._now_s
        self.started.append(request)
        self.in_flight += 1
        self._inside.append(request)
        self._run(engine)

    def _running(self) -> int:
        return len(self._unread) + len(self._reading) + len(self._writing)

    def _run(self, engine: Engine) -> None:
        while self._inside and self._running() < engine.runs:
            self._unread.append(self._inside.popleft())
        while self._unread and len(self._reading) < engine.reads:
            request = self._unread.popleft()
            self._reading.add(request, request.until_first_byte_s())

    def _arrive(self, engine: Engine) -> None:
        assert self._arrivals is not None
        assert self._next is not None
        _, prompt, output = self._next
        self._ask(engine, prompt, output, self._random.lognormvariate(0.0, self._load.luck))
        self._next = next(self._arrivals, None)

    def _probe(self, engine: Engine) -> None:
        self._probe_s = self._now_s + PROBE_S
        if engine.tells and self._finds and self._inside:
            self._post(engine, NodeRested("n", 0.0, waiting=len(self._inside)))

    def _step(self, engine: Engine) -> None:
        """Go to what happens next: a phase ends, a request comes, a rest is over, a probe."""
        running = self._running()
        write = engine.slowdown(running)
        read = write if engine.prompt_slowdown is None else engine.prompt_slowdown(running)
        read_s, write_s = self._reading.left_s() * read, self._writing.left_s() * write
        end_s = self._now_s + min(read_s, write_s)
        due_s = self._core.next_deadline_s()
        other_s = self._probe_s if due_s is None else min(self._probe_s, due_s)
        if self._next is not None:
            other_s = min(other_s, max(self._now_s, self._next[0]))
        took_s = max(0.0, min(end_s, other_s) - self._now_s)
        self._now_s += took_s
        self._reading.work_s += took_s / read
        self._writing.work_s += took_s / write
        if end_s <= other_s:
            self._advance(engine, (self._reading if read_s <= write_s else self._writing).pop())
            return
        if self._next is not None and self._next[0] <= self._now_s:
            self._arrive(engine)
        if due_s is not None and due_s <= self._now_s:
            self._post(engine, Ticked())
        if self._now_s >= self._probe_s:
            self._probe(engine)

    def _advance(self, engine: Engine, request: Request) -> None:
        if request.first_byte_s:
            self._end(engine, request)
            return
        request.first_byte_s = self._now_s
        self._writing.add(request, request.after_first_byte_s())
        self._run(engine)

    def _end(self, engine: Engine, request: Request) -> None:
        request.ended_s, request.slots = self._now_s, self.slots
        self.in_flight -= 1
        self.ended.append(request)
        self._run(engine)
        event = Finished(
            request.id,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            first_byte_s=request.first_byte_s - request.started_s,
            ran_s=self._now_s - request.started_s,
        )
        if self._arrivals is None:  # as fast as a client can be
            self._post(engine, event)
            self._ask(engine, *self._asked[self._sent])
        else:
            self._post(engine, event)


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
MEASURED = 600
"""Requests by which a number is judged."""


def best_number(engine: Engine, seed: int, numbers: Iterable[int] = NUMBERS) -> int:
    """Return the smallest number that does as well as any, give or take 3 in 100."""
    found = {}
    for number in numbers:
        run = Run(number, seed)
        run.serve(engine, 2 * number)
        found[number] = figures(run.serve(engine, MEASURED)).throughput
    most = max(found.values())
    return min(number for number, one in found.items() if one >= 0.97 * most)
