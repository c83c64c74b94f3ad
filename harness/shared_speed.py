"""Model servers in virtual time that share their speed among what they run, and their clients.

A server is what it does with n requests at once: it slows each of them down (`slowdown`), lets
some wait inside (`runs`), or refuses (`admits`). All requests share its speed, as in one batch.
Requests come as an endless backlog, or as a trace says, through a core that looks for the number
of slots, or has a fixed one.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core import (
    Arrived,
    Finished,
    NodeChanged,
    NodeRested,
    Options,
    Returned,
    Scheduler,
    SlotsChanged,
)
from forebay.testing.simulation.engine import Engine, SentRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from forebay.core import Action, Event
    from forebay.core.events import SlotsKind
    from forebay.testing.clock import FakeTimer

MODEL = "llama"
ENDLESS = 10**9
REST_S = 1.0
"""How long a node is left alone that has refused."""
BACKLOG = 1000
"""As many clients as this have always something to ask."""
USERS = 5
OPTIONS = Options(
    max_size=10**6, per_user_max=10**6, wait_s_max=1e9, aging_s=0.0, fairness="fifo",
)  # fmt: skip
PROBE_S = 5.0
"""How often a server is asked how many wait inside."""


@dataclass(frozen=True)
class Server:
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


def flat(knee: int) -> Server:
    """Return one that has room for so many, and then shares its speed."""
    return Server(lambda n: max(1.0, n / knee))


def thrashing(knee: int) -> Server:
    """Return one that gets slower altogether beyond the knee."""
    return Server(lambda n: max(1.0, (n / knee) ** 1.5))


def soft(knee: int) -> Server:
    """Return one that slows down from the first request on, and gains less and less."""
    return Server(lambda n: 1.0 + n / knee)


def queueing(knee: int) -> Server:
    """Return one with a line of its own, as vLLM has."""
    return Server(runs=knee)


def refusing(knee: int) -> Server:
    return Server(admits=knee)


@dataclass(frozen=True)
class Load:
    """What is asked, and what that takes of an idle server."""

    prompt: tuple[float, float] = (6.0, 1.0)
    """Tokens: the logarithm's mean and deviation; so for answers."""
    output: tuple[float, float] = (4.5, 0.7)
    luck: float = 0.1
    """Some take longer than others of their size: the logarithm's deviation."""
    base_s: float = 0.05
    prompt_token_s: float = 0.0002
    output_token_s: float = 0.02


LOAD = Load()


@dataclass(slots=True)
class Request(SentRequest):
    """What is asked, and when things happened to it."""

    until_first_byte_s: float = 0.0
    """Of an idle server."""
    after_first_byte_s: float = 0.0
    arrived_s: float = 0.0
    started_s: float = 0.0
    first_byte_s: float = 0.0
    ended_s: float = 0.0
    slots: int = 0
    """When it ended."""


class Phase:
    """The requests that read their prompts, or those that write their answers."""

    def __init__(self) -> None:
        self.work_s = 0.0  # what each request had of the server so far
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
        self.engine = Engine(Scheduler(OPTIONS))
        self.engine.nodes["n"] = self
        self.engine.watchers.append(self._note)
        self.slots = slots
        self.reasons: list[str] = []
        self._clients = clients
        self.sent_at_once = 0 if clients == BACKLOG or arrivals is not None else clients
        self._random = random.Random(seed)
        self._load = load
        self._arrivals = arrivals
        self._has_more = arrivals is not None
        self._server = Server()
        self._inside: deque[Request] = deque()
        self._unread: deque[Request] = deque()
        self._reading, self._writing = Phase(), Phase()
        self._paces = 1.0, 1.0
        """How long a second's work of reading and of writing takes now."""
        self._counted_s = 0.0
        self._end_of_phase: FakeTimer | None = None
        self.in_flight = 0
        self._sent = 0
        self.started: list[Request] = []
        self.ended: list[Request] = []
        kind: SlotsKind = "found" if finds else "fixed"
        self.engine.post(NodeChanged("n", slots, (MODEL,), slots_kind=kind))
        if finds:
            self.engine.every(PROBE_S, self._probe)
        self._plan_arrival()

    def serve(self, server: Server, requests: int) -> list[Request]:
        """Go on until so many more have been answered, or all; return those."""
        first, self._server = len(self.ended), server
        self._share()
        if self._arrivals is None:
            while self._sent < self._clients:
                self._ask_anything()
        while len(self.ended) < first + requests and (self._has_more or self.engine.open):
            self.engine.clock.run_next()
        return self.ended[first:]

    # -- clients

    def _ask_anything(self) -> None:
        draw = self._random.lognormvariate
        self._ask(int(draw(*self._load.prompt)) + 1, int(draw(*self._load.output)) + 1)

    def _ask(self, prompt: int, output: int) -> None:
        luck = self._random.lognormvariate(0.0, self._load.luck)
        load, name, user = self._load, str(self._sent), str(self._sent % USERS)
        self._sent += 1
        arrived = Arrived(name, MODEL, prompt_tokens=prompt, user=user, stream=True)
        request = Request(
            arrived,
            self,
            output,
            until_first_byte_s=luck * (load.base_s + load.prompt_token_s * prompt),
            after_first_byte_s=luck * load.output_token_s * output,
            arrived_s=self.engine.now_s(),
        )
        self.engine.send(request)

    def _plan_arrival(self) -> None:
        if self._arrivals is None:
            return
        row = next(self._arrivals, None)
        self._has_more = row is not None
        if row is not None:
            self.engine.clock.call_at(row[0], lambda: self._arrive(row[1], row[2]))

    def _arrive(self, prompt: int, output: int) -> None:
        self._ask(prompt, output)
        self._plan_arrival()

    def note_end(self, sent: SentRequest, refused: bool) -> None:
        """A client that is always there asks again, as fast as it can be."""
        if self._arrivals is None:
            self._ask_anything()

    # -- the server

    def start(self, sent: SentRequest, attempt: int) -> None:
        assert isinstance(sent, Request)
        if self.in_flight >= self._server.admits:
            self.engine.post(NodeRested("n", REST_S))
            self.engine.post(Returned(sent.arrived.id, exclude=False, why="refused"))
            return
        sent.started_s = self.engine.now_s()
        self.started.append(sent)
        self.in_flight += 1
        self._inside.append(sent)
        self._share()

    def stop(self, request_id: str) -> None:
        raise AssertionError("nobody leaves")

    def _note(self, _: Event, __: float, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, SlotsChanged):
                self.slots = action.slots
                self.reasons.append(f"{len(self.ended)}: {action.slots}, {action.reason}")

    def _probe(self) -> None:
        if self._server.tells and self._inside:
            self.engine.post(NodeRested("n", 0.0, waiting=len(self._inside)))

    def _share(self) -> None:
        """Let others begin, and share the speed anew."""
        self._count_work()
        server, reading, writing = self._server, self._reading, self._writing
        while self._inside and self._running() < server.runs:
            self._unread.append(self._inside.popleft())
        while self._unread and len(reading) < server.reads:
            request = self._unread.popleft()
            reading.add(request, request.until_first_byte_s)
        running = self._running()
        write = server.slowdown(running)
        read = write if server.prompt_slowdown is None else server.prompt_slowdown(running)
        self._paces = read, write
        if self._end_of_phase is not None:
            self._end_of_phase.cancel()
        if running:
            next_s = min(reading.left_s() * read, writing.left_s() * write)
            self._end_of_phase = self.engine.after(max(0.0, next_s), self._advance)

    def _count_work(self) -> None:
        """Count what has been done since the last change."""
        took_s = self.engine.now_s() - self._counted_s
        self._counted_s = self.engine.now_s()
        self._reading.work_s += took_s / self._paces[0]
        self._writing.work_s += took_s / self._paces[1]

    def _running(self) -> int:
        return len(self._unread) + len(self._reading) + len(self._writing)

    def _advance(self) -> None:
        """A request has read its prompt, or has its answer."""
        self._count_work()
        (read, write), now_s = self._paces, self.engine.now_s()
        is_read = self._reading.left_s() * read <= self._writing.left_s() * write
        request = (self._reading if is_read else self._writing).pop()
        if is_read:
            request.first_byte_s = now_s
            self._writing.add(request, request.after_first_byte_s)
            self._share()
            return
        request.ended_s, request.slots = now_s, self.slots
        self.in_flight -= 1
        self.ended.append(request)
        self._share()
        self.engine.post(
            Finished(
                request.arrived.id,
                prompt_tokens=request.arrived.prompt_tokens,
                output_tokens=request.output_tokens,
                first_byte_s=request.first_byte_s - request.started_s,
                ran_s=now_s - request.started_s,
            )
        )


@dataclass(frozen=True)
class Figures:
    """What a stretch of answers was like."""

    throughput: float
    first_byte_p95_s: float


def figures(requests: list[Request]) -> Figures:
    """Return the work done per second, and the time to the first byte of 95 in 100."""
    took_s = requests[-1].ended_s - requests[0].ended_s
    work_s = sum(one.until_first_byte_s + one.after_first_byte_s for one in requests[1:])
    began_s = requests[0].ended_s
    waits_s = sorted(
        one.first_byte_s - one.started_s for one in requests if one.started_s >= began_s
    )
    return Figures(work_s / took_s, waits_s[int(0.95 * len(waits_s))])
