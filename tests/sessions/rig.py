"""A session with a queue and a ledger that do what the test says, when it says so.

Time stands still unless advanced, writes are committed when the test commits them, and requests
are answered when it answers them: so every interleaving can be played, step by step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec

from forebay.core import Arrived
from forebay.errors import StoreFailed
from forebay.relay.call import InferenceCall
from forebay.relay.openai import OPENAI
from forebay.relay.problem import Problem
from forebay.sessions.capacity import CapacityWaiters
from forebay.sessions.conversation import Message
from forebay.sessions.deps import SessionDeps
from forebay.sessions.events import EventLog
from forebay.sessions.ledger_writer import LedgerWriter
from forebay.sessions.prompt import Prompt, Sender
from forebay.sessions.record import SessionRecord
from forebay.sessions.session import Session
from forebay.testing import FakeClock
from forebay.wire.heads import AnswerHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.call import Sink
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay
    from forebay.sessions.ledger import SessionLedger

STREAM = AnswerHead(200, [(b"content-type", b"text/event-stream")])
NO_ROOM = Problem("queue_full", "queue is full", None, 3.0)


class Request:
    """One request in the queue: what `Exchange` is to a sink."""

    def __init__(self, call: InferenceCall, sink: Sink, queue: FakeQueue) -> None:
        self.call = call
        self.sink = sink
        self.id = call.arrival.id
        self.model, self.node = call.arrival.model, ""
        self.position: int | None = 1
        self.estimate_s: float | None = 2.0
        self.ended = False
        self._queue = queue

    @property
    def as_exchange(self) -> Exchange:
        return cast("Exchange", self)

    def run(self) -> None:
        """Let it leave the line for a node."""
        self.node = "n1"
        self.sink.starts(self.as_exchange)

    def say(self, text: str) -> None:
        if not self.node:
            self.run()
        delta = {"choices": [{"delta": {"content": text}}]}
        self.sink.head(STREAM, None, self.as_exchange)
        self.sink.chunk(b"data: " + msgspec.json.encode(delta) + b"\n\n")

    def answer(self, text: str = "yes") -> None:
        self.say(text)
        self._leave()
        self.sink.end()

    def fail(self, code: str = "node_failed") -> None:
        self._leave()
        self.sink.failed(Problem(code, "it failed"), self.as_exchange)

    def cancel(self) -> None:
        """Be given up by the session."""
        if not self.ended:
            self._leave()

    def _leave(self) -> None:
        self.ended = True
        self._queue.requests.remove(self)
        if self._queue.freed is not None:
            self._queue.freed(self.call.arrival.key, self.call.arrival.user)


class FakeQueue:
    """The one queue, as sessions see it (`Relay`)."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.freed: Callable[[str, str], None] | None = None
        self.has_slot = True
        """Whether a request runs as it comes; else it waits."""
        self.has_room = True
        self.submitted = 0

    def submit(self, call: InferenceCall, sink: Sink) -> Exchange:
        self.submitted += 1
        request = Request(call, sink, self)
        if not self.has_room:
            sink.failed(NO_ROOM, request.as_exchange)
            return request.as_exchange
        self.requests.append(request)
        if self.has_slot:
            request.node = "n1"  # starts without a word, as what never waited does
        else:
            sink.waits(request.as_exchange)
        return request.as_exchange


class FakeLedger:
    """Remembers what is written; commits in order, when it is told to."""

    def __init__(self) -> None:
        self.writes: deque[tuple[str, str, Future[None]]] = deque()
        self.rows: dict[str, str] = {}
        """The status of each prompt, as a restart would find it."""
        self.ends: list[str] = []
        self.automatic = True

    def accept(self, session_id: str, prompt: Prompt) -> Future[None]:
        return self._write("queued", prompt.id)

    def discard(self, prompt: Prompt) -> Future[None]:
        return self._write("discarded", prompt.id)

    def flush(self) -> Future[None]:
        return self._write("flushed", "")

    def start(self, prompt: Prompt) -> Future[None]:
        return self._write("running", prompt.id)

    def end(self, prompt: Prompt, event_id: int, ended_at: float) -> Future[None]:
        return self._write(prompt.status, prompt.id)

    def _write(self, status: str, prompt_id: str) -> Future[None]:
        future: Future[None] = Future()
        self.writes.append((status, prompt_id, future))
        if self.automatic:
            self.commit_all()
        return future

    def commit(self) -> None:
        status, prompt_id, future = self.writes.popleft()
        self.rows[prompt_id] = status
        if status in ("completed", "failed", "cancelled"):
            self.ends.append(prompt_id)
        future.set_result(None)

    def refuse(self) -> None:
        """Let the next write fail, as a full disk would."""
        self.writes.popleft()[2].set_exception(StoreFailed("no"))

    def commit_all(self) -> None:
        while self.writes:
            self.commit()


class Stage:
    """One session and all that is around it."""

    def __init__(self, limit: int = 5, context: int | None = None) -> None:
        self.clock = FakeClock(1000.0)
        self.queue = FakeQueue()
        self.ledger = FakeLedger()
        self.limit = limit
        self.context = context
        self.waiters = CapacityWaiters(cast("Relay", self.queue), self.clock)
        self.writer = LedgerWriter(cast("SessionLedger", self.ledger), self.clock)
        self._ids = count(1)
        self.deps = SessionDeps(
            cast("Relay", self.queue),
            self.clock,
            self._make_call,
            lambda model: self.context,
            lambda: 60.0,
            lambda priority: ("high", "normal", "low").index(priority),
            lambda prefix: f"{prefix}{next(self._ids)}",
        )
        self.session = self.make()

    def make(self, life: int = 0, **more: Any) -> Session:
        """Return a session, as the first process or a later one has it."""
        options = {"system": None, "max_tokens": 0, "options": {}, "base": (), **more}
        record = SessionRecord(
            id="ses", owner="", model="m", created_at=0.0, used_at=0.0, life=life, **options
        )
        log = EventLog(f"e{life}", life, self.clock)
        return Session(record, log, self.writer, self.waiters, self.deps)

    def _make_call(
        self, record: SessionRecord, prompt: Prompt, body: bytes
    ) -> InferenceCall | Problem:
        arrival = Arrived(prompt.id, "m", stream=True, patient=True)
        return InferenceCall(arrival, OPENAI, route="/", target=b"/", body=body, asked_model="m")

    def admit(self, text: str = "hi", deadline_s: float | None = None, **sender: Any) -> Prompt:
        """Let a prompt in, up to the ledger; `accepted` lets it through."""
        messages = (Message("user", text),)
        return self.session.admit(messages, Sender(**sender), self.limit, deadline_s)

    async def prompt(self, text: str = "hi", **more: Any) -> Prompt:
        """Have a prompt accepted."""
        prompt = self.admit(text, **more)
        await self.session.accept(prompt)
        await settled()
        return prompt

    @property
    def running(self) -> Request:
        """The one request there may be."""
        (request,) = self.queue.requests
        return request

    def events(self, session: Session | None = None) -> list[dict[str, Any]]:
        """Return everything that has been told so far."""
        log = (session or self.session).log
        found = []
        for _, frame in log._ring:
            found.append(msgspec.json.decode(frame.partition(b"data: ")[2]))
        return found

    def kinds(self, prompt: Prompt | None = None) -> list[str]:
        """Return the kinds of events told so far, perhaps of one prompt only."""
        wanted = self.events()
        if prompt is not None:
            wanted = [event for event in wanted if event["promptId"] == prompt.id]
        return [event["type"] for event in wanted]


async def settled() -> None:
    """Let the loop do everything that is due now."""
    for _ in range(6):
        await asyncio.sleep(0)
