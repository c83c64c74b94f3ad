"""An open-loop run: requests are sent when they are due, regardless of the others.

Each is timed from when it *should* have been sent, so a stall, ours or the server's, counts for
everyone who would have met it (Tene, "coordinated omission"). How late this program was itself is
kept beside it: where it could not keep the schedule, the report must say so and not blame the
server.

No two prompts begin alike, so no cache of prefixes flatters a server. Within a run that is certain;
between runs it is the salt of the plan that makes them differ.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from forebay.clock import SystemClock
from forebay.errors import BackendFailed
from forebay.load.answers import MeasuredAnswer, plain
from forebay.load.connections import LoadPool
from forebay.load.plan import ONE_PRIORITY, longest_prompt
from forebay.load.samples import NOT_SENT, TIMEOUT, UNFINISHED, RequestSample

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from forebay.clock import TimerHandle, Timers
    from forebay.load.plan import Arrival, LoadPlan

CHAT = "/v1/chat/completions"
BURST_MAX = 64
"""Sent before answers are looked at again, where this program is behind."""
MESSAGES_MAX = 20
BACKOFF_S = 1.0
"""Before another attempt, where the server does not say how long."""
RETRIED = (429, 503)
LOOK_S = 0.25
"""How often the progress is shown."""
FIRST_LOOK_S = 10.0
LIST_BYTES_MAX = 4 * 1024 * 1024
"""Of models: some ten thousand of them."""
_TEXT = (
    "the river runs past a mill and under an old stone bridge where two people stand and talk "
    "about rain wind light and the long way home while a boat with one red sail goes down to "
    "the sea and no one knows what it will find there or when it may come back again"
)
_WORDS = _TEXT.split()
NONCE_TOKENS = 8
"""About what the eight figures at the front take."""


class Measured(Struct, frozen=True):
    """What a run has found out."""

    samples: list[RequestSample]
    """In the order in which they should have been sent."""
    span_s: float
    """For how long requests came."""
    elapsed_s: float
    """Until the last answer, or the end of the span."""
    messages: dict[str, str]
    """What the server said, by code of error: the first of each."""
    is_interrupted: bool


class RunProgress(Struct):
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

    def __init__(
        self, plan: LoadPlan, planned: list[Arrival], pool: LoadPool, clock: Timers
    ) -> None:
        self._plan = plan
        self._planned = planned
        self._pool = pool
        self._clock = clock
        self._users = plan.source("users")
        self._urgency = plan.source("priorities")
        self._prompts = Prompts(plan.source(f"prompts/{plan.salt}"), longest_prompt(planned))
        self._next = 0
        self._samples: list[RequestSample] = []
        self._messages: dict[str, str] = {}
        self._start_s = 0.0
        self._timer: TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._is_stopped = False
        self._fault: BaseException | None = None
        self.live = RunProgress(len(planned), plan.span_s(planned))

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
        sample = RequestSample(
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

    def _body(self, arrival: Arrival, sample: RequestSample, prompt: str) -> bytes:
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

    async def _one(self, sample: RequestSample, body: bytes) -> None:
        origin_s = self._start_s + sample.at_s
        headers = {"x-forebay-user": sample.user}
        if self._plan.priorities is not None:
            headers["x-forebay-priority"] = sample.priority
        answer = MeasuredAnswer(sample, origin_s)
        try:
            async with asyncio.timeout(self._plan.timeout_s):
                while True:
                    await self._pool.send("POST", CHAT, headers, body, answer)
                    if sample.status not in RETRIED or sample.retries >= self._plan.retries:
                        break
                    pause_s = BACKOFF_S if answer.retry_after_s is None else answer.retry_after_s
                    await asyncio.sleep(pause_s)
                    _forget_attempt(sample)
                    answer = MeasuredAnswer(sample, origin_s)
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


def _forget_attempt(sample: RequestSample) -> None:
    sample.retries += 1
    sample.code, sample.status, sample.total_s = "", 0, None
    sample.wait_s, sample.queued = None, None


class Unreachable(BackendFailed):
    """Nothing answers at the address, or nothing that could be loaded."""

    code = "unreachable"


class AccessDenied(BackendFailed):
    """The server does not let us in."""

    code = "refused"


class Watcher(Protocol):
    """Receives the progress of a run."""

    def update(self, live: RunProgress) -> None: ...


class FineClock(SystemClock):
    """The machine's clock, with the loop's timers: uvloop's own clock moves by milliseconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a time of `monotonic_s`, to the millisecond."""
        return self._loop.call_later(max(0.0, at_s - self.monotonic_s()), callback)


class _ListedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ListedModel]


class _Look(MeasuredAnswer):
    """Keeps the answer's body, which is small, to be read."""

    def __init__(self) -> None:
        super().__init__(RequestSample(0.0, "", ""), 0.0)
        self.content = bytearray()

    def body(self, data: bytes, now_s: float) -> None:
        super().body(data, now_s)
        if len(self.content) + len(data) > LIST_BYTES_MAX:
            self._fail("answer_too_large")
            self.content.clear()
        else:
            self.content += data


async def models_of(url: str, key: str | None) -> list[str] | None:
    """Return the models that a server lists; None where it has no such list.

    Raises Unreachable and AccessDenied.
    """
    pool = LoadPool(url, key, FineClock())
    look = _Look()
    try:
        async with asyncio.timeout(FIRST_LOOK_S):
            await pool.send("GET", "/v1/models", {}, b"", look)
    except TimeoutError:
        raise Unreachable(f"{url} does not answer within {FIRST_LOOK_S:.0f} s") from None
    finally:
        await pool.close()
    status = look.sample.status
    if status == 0:
        raise Unreachable(f"nothing answers at {url} ({look.message or look.sample.code})")
    if status in (401, 403):
        raise AccessDenied(f"{url} says {status}: {look.message or look.sample.code}")
    return _listed(bytes(look.content)) if status < 300 else None


def _listed(content: bytes) -> list[str] | None:
    try:
        found = msgspec.json.decode(content, type=_ModelList)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return [plain(model.id) for model in found.data]


async def load(
    plan: LoadPlan, planned: list[Arrival], key: str | None, watcher: Watcher
) -> Measured:
    """Run the plan; Ctrl-C ends it early, with what was measured until then."""
    clock = FineClock()
    run = LoadRun(plan, planned, LoadPool(plan.url, key, clock), clock)

    async def watch() -> None:
        while True:
            run.live.now_s = run.now_s()
            watcher.update(run.live)
            await asyncio.sleep(LOOK_S)

    with _on_interrupt(run.stop):
        running = asyncio.create_task(run.run())
        watching = asyncio.create_task(watch())
        try:
            return await running
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Have the first Ctrl-C call that; the second ends the program as ever."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    try:
        loop.add_signal_handler(signal.SIGINT, once)
    except (NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or on Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


# Short, common words: with the usual tokenizers each is one token, with its blank.


class Prompts:
    """Makes reproducible prompts of approximately a given number of tokens."""

    def __init__(self, source: random.Random, tokens_max: int) -> None:
        self._nonce = source.getrandbits(32)
        self._step = source.getrandbits(32) | 1  # odd: all 2^32 numbers come before one comes again
        count = max(1, tokens_max)
        words = [_WORDS[i % len(_WORDS)] for i in range(count)]
        self._text = " ".join(words)
        self._ends = [end - 1 for end in accumulate(len(word) + 1 for word in words)]

    def make(self, tokens: int) -> str:
        """Return a prompt of about that many tokens, never the same twice."""
        self._nonce = (self._nonce + self._step) % 2**32
        nonce = f"{self._nonce:08x}"
        words = min(tokens - NONCE_TOKENS, len(self._ends))
        return nonce if words < 1 else f"{nonce} {self._text[: self._ends[words - 1]]}"
