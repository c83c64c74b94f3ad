"""A scheduler for the continuous batching of Hugging Face transformers, on a `RequestQueue`.

transformers runs one model for many requests at once: each step takes one token of every answer
under way and, with what is left of the step's token budget, parts of prompts. Its own scheduler
goes by arrival. This one draws from a `RequestQueue`, so the engine gets priorities, fairness
between users, bounds and cancelling; and it differs in four more ways:

- **Memory.** A request begins when the blocks for its prompt and a bound on its answer are free,
  less what those under way may still need. With the whole of `max_tokens` as the bound nobody is
  ever put out of the cache in the middle; `answer_bound` reserves less, and then the engine puts
  one out where it must (`preempted`). A request larger than the cache is refused when it is
  submitted. (transformers' own scheduler tries it for ever, and the engine dies.)
- **Prompts.** As many prompts of a priority are begun as the next step can read beside the longest,
  `PROMPTS_MAX` at most; higher priorities first, then those with the least left, so that a short
  prompt does not wait for a long one. The oldest gets a quarter of each step all the same: a long
  prompt does not wait for ever.
- **Places.** Beyond `max_requests_per_batch`, one request in sixteen more may begin if it has a
  higher priority than others: it waits for a step then, not for the end of somebody's answer.
- **Answers under way** go on in every step.

Use it through `BatchingEngine`; needs `forebay[transformers]` and a build of PyTorch.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections import deque
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from transformers import ContinuousBatchingConfig
from transformers.generation.continuous_batching.requests import (
    FutureRequestState,
    RequestState,
    RequestStatus,
)
from transformers.generation.continuous_batching.scheduler import SCHEDULER_MAPPING, Scheduler

from forebay.batching.checks import at_least
from forebay.batching.errors import Cancelled, DuplicateRequest, RequestTooLarge
from forebay.batching.kv_cache import kv_cache
from forebay.batching.queue import RequestQueue
from forebay.batching.request import Priority, Request
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from typing import Self

    from transformers import GenerationConfig, PreTrainedModel
    from transformers.generation.continuous_batching.continuous_api import (
        ContinuousBatchingManager,
    )
    from transformers.generation.continuous_batching.requests import GenerationOutput

SCHEDULER_NAME = "forebay"
PROMPTS_MAX = 8
"""Prompts of one priority, or higher, that are read at once: enough for short ones to get past a
few long ones, few enough that each is done soon."""
OLDEST_SHARE = 4
"""One over this of the tokens of a step is kept for the oldest prompt."""
PLACES_SHARE = 16
"""One over this of the places in the batch is added for priorities above others."""
TIMES_MAX = 1000
"""Times to the first token that are kept for each priority."""


class EngineFailed(ForebayError):
    """The engine could not finish a request, or has stopped."""


@dataclass(frozen=True)
class EngineFigures:
    """What an engine does at this moment."""

    waiting: int
    running: int
    kv_used: int
    """Blocks of the key-value cache in use, of `kv_total`."""

    kv_total: int
    kv_free_tokens: int
    """Tokens that could begin now: what is free, less what those under way may still need."""

    preempted: int
    """Requests put out of the cache in the middle, so far."""

    first_token_s: dict[Priority, tuple[float, ...]]
    """From `submit` to the first token, the last thousand of each priority, oldest first."""


@dataclass
class QueueOptions:
    """How the queue of an engine is made."""

    capacity: int | None = 100
    fairness: Literal["fifo", "round_robin"] = "fifo"
    answer_bound: int | None = None
    places: int | None = None
    """Requests of any priority that run at once."""


@dataclass
class Run:
    """A request that was drawn from the queue."""

    request: Request
    priority: Priority
    tokens: int  # of prompt and answer, for which it has room
    number: int  # in the order of drawing


@dataclass
class Batch:
    """The next step, as far as it is filled."""

    tokens_left: int
    cache_left: int
    requests_left: int
    is_decode_only: bool
    scheduled: list[FutureRequestState] = field(default_factory=list)
    allocation_failed: bool = False


class QueueScheduler(Scheduler):  # type: ignore[misc]
    """Draws from a `RequestQueue`; all methods but `figures` run in the engine's thread."""

    def __init__(
        self,
        cache: Any,
        safety_margin: float | None,
        max_requests_per_batch: int,
        options: QueueOptions,
    ) -> None:
        self._answer_bound = options.answer_bound
        self.preempted = 0
        self._drawn_total = 0
        self._runs: dict[str, Run] = {}
        self._left: Run | None = None  # the last one that left the batch
        self._first_token_s: dict[Priority, deque[float]] = {
            priority: deque(maxlen=TIMES_MAX) for priority in Priority
        }
        # Blocks are reserved, so that no margin is needed beside them.
        super().__init__(cache, safety_margin or 0.0, max_requests_per_batch)
        self._places_above = max_requests_per_batch
        self._places_all = min(options.places or max_requests_per_batch, max_requests_per_batch)
        self.room = kv_cache(self)
        self.queue = RequestQueue(
            capacity=options.capacity,
            estimator=lambda request: self.room.size_of(self._tokens_of(request)),
            memory_limit=self.room.total,
            fairness=options.fairness,
        )
        self.submitted: dict[str, list[bool]] = {}
        """What came through `BatchingEngine`, until it ends, and whether the engine's thread has
        got it yet; written by any thread."""

    def _tokens_of(self, request: Request) -> int:
        bound = self._answer_bound
        answer = request.max_tokens if bound is None else min(request.max_tokens, bound)
        return len(request.prompt) + answer + 1

    def figures(self) -> EngineFigures:
        """Return what is going on; from any thread, so its numbers may be of two moments."""
        return EngineFigures(
            waiting=len(self.queue),
            running=len(self._runs),
            kv_used=self.room.used(),
            kv_total=self.room.total,
            kv_free_tokens=self.room.tokens_in(max(0, self._free())),
            preempted=self.preempted,
            first_token_s={
                priority: tuple(times) for priority, times in self._first_token_s.items()
            },
        )

    # -- what the engine tells us

    def reset(self) -> None:
        super().reset()
        self._runs.clear()
        self._left = None

    def add_waiting_request(self, state: RequestState) -> None:
        """Take a new request in, or one that the engine put out of the cache back."""
        id = state.request_id
        left, self._left = self._left, None
        is_back = state.is_cpu_offloaded or state._true_initial_tokens > 0
        if is_back and left is not None and left.request.id == id:
            self.preempted += 1
            accepted = self.queue.requeue(left.request)
        elif (known := self.submitted.get(id)) is not None:
            known[0] = True
            accepted = self.queue.contains(id)
        else:  # somebody uses the manager of transformers by itself
            limit = state.max_new_tokens or 0
            self.queue.enqueue(Request(id, state.initial_tokens, limit))
            accepted = True
        self.waiting_requests[id] = state
        if not accepted:  # cancelled meanwhile
            self.set_request_cancellation(id)

    def finish_request(self, request_id: str) -> None:
        state = self.active_requests.get(request_id)
        self._left = run = self._runs.pop(request_id, None)
        if run is not None and state is not None and state._timestamps:
            first_s = state._timestamps[0] - state.created_time
            self._first_token_s[run.priority].append(first_s)
        super().finish_request(request_id)
        self.room.reclaim()

    def clear_cancelled_requests(self) -> list[RequestState]:
        with self._cancellation_lock:
            ids = tuple(self._requests_to_cancel)
        for id in ids:
            self.queue.remove(id)
            self._runs.pop(id, None)
            if self.submitted.get(id) != [False]:  # else it is on its way: refused on arrival
                self.submitted.pop(id, None)
        cancelled = list(super().clear_cancelled_requests())
        if cancelled:
            self.room.reclaim()
        return cancelled

    # -- the next step

    def schedule_batch(
        self, token_budget: int, cache_budget: int
    ) -> tuple[list[FutureRequestState] | None, bool, int, int]:
        """Fill one step: a token of each answer under way, then parts of prompts."""
        batch = Batch(
            tokens_left=token_budget,
            cache_left=cache_budget,
            requests_left=self.max_requests_per_batch,
            is_decode_only=self.cache.max_blocks_per_request > 0,
        )
        self.starved_requests: list[tuple[RequestState, int]] = []
        for state in tuple(self.active_requests.values()):
            if state.status == RequestStatus.DECODING:
                self._add(batch, state, batch.tokens_left)
        if not self.block_new_requests:
            self._draw(token_budget)
        self._add_prompts(batch)
        if not batch.scheduled and batch.allocation_failed:
            return None, batch.is_decode_only, 0, 0
        tokens = token_budget - batch.tokens_left
        return batch.scheduled, batch.is_decode_only, tokens, cache_budget - batch.cache_left

    def _draw(self, token_budget: int) -> None:
        """Begin what fits: of each priority, no more prompts than the next step can read.

        One that has begun takes the place of an answer, so that it should not wait then. The
        longest does not count: the others are read before it.
        """
        first = self.queue.next_priority
        if first is None or len(self._runs) >= self._places(first):
            return
        free = self._free()
        reading = [
            (run.priority, len(state.remaining_prefill_tokens)) for state, run in self._prompts()
        ]
        for priority in reversed(Priority):
            left = [tokens for other, tokens in reading if other >= priority]
            while len(left) < PROMPTS_MAX and sum(left) - max(left, default=0) < token_budget:
                if free <= 0 or len(self._runs) >= self._places(priority):
                    return
                drawn = self.queue.get_requests(1, free, priority)
                if not drawn:
                    break
                request = drawn[0]
                if request.id not in self.waiting_requests:
                    self.queue.requeue(request)  # submitted, but not handed over yet
                    break
                self._drawn_total += 1
                free -= request.memory_bytes or 0
                tokens = len(self.waiting_requests[request.id].remaining_prefill_tokens)
                left.append(tokens)
                reading.append((request.priority or priority, tokens))
                self._runs[request.id] = Run(
                    request, reading[-1][0], self._tokens_of(request), self._drawn_total
                )

    def _places(self, priority: Priority) -> int:
        """Return how many may be under way when one of a priority begins."""
        if any(run.priority < priority for run in self._runs.values()):
            return self._places_above
        return self._places_all

    def _free(self) -> int:
        """Return the room that is free, less what those under way may still need."""
        return self.room.free((id, run.tokens) for id, run in tuple(self._runs.items()))

    def _prompts(self) -> Iterable[tuple[RequestState, Run]]:
        """Yield those whose prompt is not read yet."""
        for id, run in self._runs.items():
            state = self.active_requests.get(id) or self.waiting_requests.get(id)
            if state is not None and state.status < RequestStatus.DECODING:
                yield state, run

    def _add_prompts(self, batch: Batch) -> None:
        prompts = sorted(
            self._prompts(),
            key=lambda prompt: (-prompt[1].priority, len(prompt[0].remaining_prefill_tokens)),
        )
        if not prompts:
            return
        highest = prompts[0][1].priority
        oldest = min(
            (run for _, run in prompts if run.priority == highest), key=lambda run: run.number
        )
        kept = batch.tokens_left // OLDEST_SHARE
        for state, run in prompts:
            if run is oldest:
                kept = 0
            if batch.tokens_left - kept <= 0 or batch.requests_left <= 0:
                continue
            self._add(batch, state, batch.tokens_left - kept)

    def _add(self, batch: Batch, state: RequestState, tokens_max: int) -> None:
        """Put a request into the step with at most so many tokens, if there is room for it."""
        if tokens_max <= 0 or batch.requests_left <= 0:
            return
        tokens = self._infer_request_tokens(state, set())
        wanted = min(len(tokens), tokens_max)
        read = state.current_len()
        if self.room.read_limit is not None:
            read = min(read, self.room.read_limit)
        can_decode = wanted == 1 and state.position_offset < self.room.fast_decode_max
        # The index of what a mixed step reads has a fixed size; a decode-only step has none.
        if not (batch.is_decode_only and can_decode) and batch.cache_left < read:
            return
        if not self.room.store(state, wanted):
            batch.allocation_failed = True
            return
        self._schedule_request(state, tokens, tokens_max, set())
        self.waiting_requests.pop(state.request_id, None)
        count = len(state.tokens_to_process)
        batch.is_decode_only &= count == 1 and can_decode
        batch.tokens_left -= count
        batch.cache_left -= read
        batch.requests_left -= 1
        completed = self.room.completed(state, count)
        is_read = not state.remaining_prefill_tokens
        batch.scheduled.append(FutureRequestState(state, is_read, completed, count))


class BatchingEngine:
    """A model that serves many requests at once, in the order of a `RequestQueue`.

    ```python
    with BatchingEngine(model, capacity=1000, fairness="round_robin") as engine:
        request = Request("r1", tokenizer.encode("Why?"), max_tokens=200, user="ann")
        async for tokens in engine.generate(request, Priority.HIGH):
            print(tokenizer.decode(tokens), end="")
    ```
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        capacity: int | None = 100,
        fairness: Literal["fifo", "round_robin"] = "fifo",
        answer_bound: int | None = None,
        batching: ContinuousBatchingConfig | None = None,
        generation: GenerationConfig | None = None,
    ) -> None:
        """Make the engine, and its cache; it starts with `start`, or in a `with`.

        `capacity`, `fairness`: of the queue. `answer_bound`: tokens of an answer for
        which memory is reserved, None for all of `max_tokens`. `batching`, `generation`: what
        transformers is given; its scheduler is replaced.
        """
        if answer_bound is not None:
            at_least(1, "answer_bound", answer_bound)
        config = ContinuousBatchingConfig() if batching is None else copy(batching)
        config.scheduler_type = SCHEDULER_NAME
        options = QueueOptions(capacity, fairness, answer_bound, config.max_requests_per_batch)
        if options.places is not None:
            config.max_requests_per_batch = options.places + options.places // PLACES_SHARE
        SCHEDULER_MAPPING[SCHEDULER_NAME] = partial(QueueScheduler, options=options)
        self.manager: ContinuousBatchingManager = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=config
        )
        if self.manager.distributed_helper.tp_size > 1:
            raise EngineFailed("tensor parallelism is not supported: each process has its queue")
        self.manager.warmup()
        processor = self.manager.batch_processor
        assert processor is not None
        self._scheduler: QueueScheduler = processor.scheduler

    @property
    def queue(self) -> RequestQueue:
        """The requests that wait; enqueue through `generate` only."""
        return self._scheduler.queue

    def start(self) -> None:
        """Begin to run requests."""
        self.manager.start()

    def close(self) -> None:
        """Stop: what runs or waits ends with `EngineFailed`."""
        self.manager.stop(block=True, hard_stop=True)
        self.queue.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def figures(self) -> EngineFigures:
        """Return what the engine does at this moment."""
        return self._scheduler.figures()

    async def generate(
        self, request: Request, priority: Priority = Priority.NORMAL, *, stream: bool = True
    ) -> AsyncGenerator[list[int]]:
        """Run a request, whose prompt is a list of tokens; yield what it answers, in pieces.

        Raises `QueueFull`, `RequestTooLarge`, `DuplicateRequest` before it waits (and `ValueError`
        for an empty prompt), `Cancelled` once its token is cancelled, and `EngineFailed`. To leave
        the iteration cancels it as well.
        Without `stream` there is one piece.
        """
        outputs: asyncio.Queue[GenerationOutput | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        end = self._submit(
            request,
            priority,
            outputs.put_nowait,
            lambda: loop.call_soon_threadsafe(outputs.put_nowait, None),
            stream=stream,
        )
        sent, is_over = 0, False
        try:
            while not is_over:
                output = await outputs.get()
                if output is None:
                    raise Cancelled(f"request {request.id!r} was cancelled")
                is_over = output.is_finished()
                if output.error is not None:
                    raise EngineFailed(f"request {request.id!r} failed: {output.error}")
                if tokens := output.generated_tokens[sent:]:
                    sent += len(tokens)
                    yield tokens
        finally:
            end(is_over)

    def _submit(
        self,
        request: Request,
        priority: Priority,
        on_output: Callable[[GenerationOutput], object],
        on_cancel: Callable[[], object],
        *,
        stream: bool,
    ) -> Callable[[bool], None]:
        """Put a request into the queue and tell the engine; return what ends it."""
        if isinstance(request.prompt, str):
            raise TypeError(f"the prompt of request {request.id!r} must be tokens, not text")
        if not request.prompt:  # a step without a token would end the engine
            raise ValueError(f"the prompt of request {request.id!r} is empty")
        self._enqueue(request, priority)
        id, token = request.id, request.cancel
        registration: object = None

        def end(is_over: bool) -> None:
            if token is not None:
                token.unregister(registration)
            self._forget(id, is_over)

        try:
            self.manager.register_result_handler(id, on_output)
            known = self.manager.add_request(
                list(request.prompt),
                request_id=id,
                max_new_tokens=request.max_tokens,
                streaming=stream,
                record_timestamps=True,
            )
            if known is None:
                self._scheduler.submitted.pop(id, None)
                raise EngineFailed("the engine has stopped")
            if token is not None:
                registration = token.register(on_cancel)
        except BaseException:
            self.queue.remove(id)
            end(False)
            raise
        return end

    def _enqueue(self, request: Request, priority: Priority) -> None:
        submitted, ours = self._scheduler.submitted, [False]
        if submitted.setdefault(request.id, ours) is not ours:
            raise DuplicateRequest(f"request {request.id!r} refused: one of this id has not ended")
        try:
            self._wait_in_line(request, priority)
        except BaseException:
            submitted.pop(request.id, None)
            raise

    def _wait_in_line(self, request: Request, priority: Priority) -> None:
        try:
            self.queue.enqueue(request, priority)
        except RequestTooLarge:
            scheduler, tokens = self._scheduler, len(request.prompt) + request.max_tokens
            size = scheduler.room.tokens_in(scheduler.room.total)
            raise RequestTooLarge(
                f"request {request.id!r} refused: its prompt and answer may take {tokens} tokens,"
                f" and the cache of the engine holds {size}"
            ) from None

    def _forget(self, id: str, is_over: bool) -> None:
        """Give up what belongs to a request whose reader leaves; stop it unless it is over."""
        if is_over:
            self._scheduler.submitted.pop(id, None)
        else:
            self.queue.remove(id)
            self.manager.cancel_request(id)  # the engine's thread forgets the rest
        router = self.manager.output_router
        with router._lock:
            router.result_handlers.pop(id, None)
        with contextlib.suppress(queue.Empty):
            while True:  # outputs without a handler: their readers have left
                router.output_queue.get_nowait()
