"""A run: requests go out when they are due, whatever has become of the others.

Each is timed from when it *should* have been sent, so a stall, ours or the server's, counts for
everyone who would have met it (Tene, "coordinated omission"). How late this program was itself is
kept beside it: where it could not keep the schedule, the report must say so and not blame the
server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from forebay.load.answers import Answer
from forebay.load.plan import ONE_PRIORITY, longest_prompt
from forebay.load.prompts import Prompts
from forebay.load.samples import NOT_SENT, TIMEOUT, UNFINISHED, Sample

if TYPE_CHECKING:
    from forebay.clock import TimerHandle, Timers
    from forebay.load.arrivals import Arrival
    from forebay.load.plan import Plan
    from forebay.load.pool import Pool

CHAT = "/v1/chat/completions"
BURST_MAX = 64
"""Sent before answers are looked at again, where this program is behind."""
MESSAGES_MAX = 20
BACKOFF_S = 1.0
"""Before another attempt, where the server does not say how long."""
RETRIED = (429, 503)


class Measured(Struct, frozen=True):
    """What a run has found out."""

    samples: list[Sample]
    """In the order in which they should have been sent."""
    span_s: float
    """For how long requests came."""
    elapsed_s: float
    """Until the last answer, or the end of the span."""
    messages: dict[str, str]
    """What the server said, by code of error: the first of each."""
    is_interrupted: bool


class Live(Struct):
    """How far it is, while it runs."""

    planned: int
    span_s: float
    now_s: float = 0.0
    sent: int = 0
    ok: int = 0
    failed: int = 0
    not_sent: int = 0
    in_flight: int = 0
    late_s: float = 0.0
    """How late the last one was sent."""


class LoadRun:
    """One run of a plan against one server."""

    def __init__(self, plan: Plan, planned: list[Arrival], pool: Pool, clock: Timers) -> None:
        self._plan = plan
        self._planned = planned
        self._pool = pool
        self._clock = clock
        self._users = plan.source("users")
        self._urgency = plan.source("priorities")
        self._prompts = Prompts(plan.source(f"prompts/{plan.salt}"), longest_prompt(planned))
        self._next = 0
        self._samples: list[Sample] = []
        self._messages: dict[str, str] = {}
        self._start_s = 0.0
        self._timer: TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._is_stopped = False
        self._fault: BaseException | None = None
        self.live = Live(len(planned), plan.span_s(planned))

    async def run(self) -> Measured:
        """Send everything and wait for the answers, or until `stop`."""
        self._start_s = self._clock.monotonic_s()
        self._tick()
        try:
            while not self._is_stopped and (self._next < len(self._planned) or self._tasks):
                self._news.clear()
                await self._news.wait()
        finally:
            await self._break_off()
        if self._fault is not None:
            raise self._fault
        elapsed_s = self._clock.monotonic_s() - self._start_s
        self._samples.sort(key=lambda sample: sample.at_s)
        span_s = min(self.live.span_s, elapsed_s) if self._is_stopped else self.live.span_s
        answered = (sample.ended_s or 0.0 for sample in self._samples if sample.is_answered)
        ended_s = max(answered, default=0.0)  # that we gave up on one is no answer
        return Measured(
            self._samples,
            span_s,
            elapsed_s if self._is_stopped else max(span_s, ended_s),
            self._messages,
            self._is_stopped,
        )

    def stop(self) -> None:
        """Send nothing more and wait for nothing more; what was measured stays."""
        self._is_stopped = True
        self._news.set()

    def now_s(self) -> float:
        """Return how long it has run."""
        return self._clock.monotonic_s() - self._start_s

    # -- sending

    def _tick(self) -> None:
        """Send what is due, and come back when the next is."""
        self._timer = None
        if self._is_stopped:
            return
        for _ in range(BURST_MAX):
            if self._next >= len(self._planned):
                self._news.set()
                return
            arrival = self._planned[self._next]
            late_s = self.now_s() - arrival.at_s
            if late_s < 0:
                break
            self._next += 1
            self._launch(arrival, late_s)
        due_s = self._start_s + self._planned[min(self._next, len(self._planned) - 1)].at_s
        self._timer = self._clock.call_at(due_s, self._tick)

    def _launch(self, arrival: Arrival, late_s: float) -> None:
        priorities = self._plan.priorities or ONE_PRIORITY
        sample = Sample(
            arrival.at_s,
            self._plan.users.draw(self._users),
            priorities.draw(self._urgency),
            late_s=late_s,
        )
        self._samples.append(sample)
        self.live.late_s = late_s
        prompt = self._prompts.make(arrival.prompt_tokens)  # drawn even if unsent: the rest stays
        if self.live.in_flight >= self._plan.max_in_flight:
            sample.code = NOT_SENT
            self.live.not_sent += 1
            return
        self.live.sent += 1
        self.live.in_flight += 1
        body = self._body(arrival, sample, prompt)
        task = asyncio.create_task(self._one(sample, body))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _body(self, arrival: Arrival, sample: Sample, prompt: str) -> bytes:
        plan = self._plan
        body: dict[str, Any] = {
            "model": plan.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max(1, arrival.tokens_max),
            "stream": plan.stream,
            "user": sample.user,
        }
        if plan.stream and plan.usage:
            body["stream_options"] = {"include_usage": True}
        if plan.ignore_eos:
            body["ignore_eos"] = True
        return msgspec.json.encode(body)

    # -- one request

    async def _one(self, sample: Sample, body: bytes) -> None:
        origin_s = self._start_s + sample.at_s
        headers = {"x-forebay-user": sample.user}
        if self._plan.priorities is not None:
            headers["x-forebay-priority"] = sample.priority
        answer = Answer(sample, origin_s)
        try:
            async with asyncio.timeout(self._plan.timeout_s):
                while True:
                    await self._pool.send("POST", CHAT, headers, body, answer)
                    if sample.status not in RETRIED or sample.retries >= self._plan.retries:
                        break
                    pause_s = BACKOFF_S if answer.retry_after_s is None else answer.retry_after_s
                    await asyncio.sleep(pause_s)
                    _forget_attempt(sample)
                    answer = Answer(sample, origin_s)
        except TimeoutError:
            answer.broken(TIMEOUT, self._clock.monotonic_s())
        except asyncio.CancelledError:
            sample.code, sample.total_s = UNFINISHED, None
            raise
        self.live.ok += sample.is_ok
        self.live.failed += sample.is_error
        if answer.message and len(self._messages) < MESSAGES_MAX:
            self._messages.setdefault(sample.code, answer.message)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.live.in_flight -= 1
        self._news.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = fault  # of this program: nothing that it measures could be believed
            self.stop()

    async def _break_off(self) -> None:
        """Hang up on whatever is still under way."""
        if self._timer is not None:
            self._timer.cancel()
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._pool.close()


def _forget_attempt(sample: Sample) -> None:
    sample.retries += 1
    sample.code, sample.status, sample.total_s = "", 0, None
    sample.wait_s, sample.queued = None, None
