"""The prompt at the head of its session: a request in the one queue, or waiting to become one.

Only the head is ever a request: its wait begins there, so that no prompt times out behind its own
session. Where the queue has no room the head waits for some, at most as long as a request may wait
in the queue.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from forebay.relay.problem import Problem
from forebay.sessions.rooms import awaited
from forebay.sessions.turn import Listener, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forebay.clock import TimerHandle
    from forebay.relay.call import Call
    from forebay.relay.exchange import Exchange
    from forebay.sessions.conversation import Message
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.rooms import Rooms, Waiter
    from forebay.sessions.surroundings import Surroundings

logger = logging.getLogger("forebay.sessions")


class Owner(Protocol):
    """The session; one of the last two comes, once, unless the head is stopped."""

    def head_waits(self, prompt: Prompt, place: int | None, estimate_s: float | None) -> None:
        """Know that it has to wait."""
        ...

    def head_starts(self, prompt: Prompt, exchange: Exchange) -> None:
        """Know that it runs."""
        ...

    def head_says(self, prompt: Prompt, text: str, thoughts: str) -> None:
        """Take a piece of the answer."""
        ...

    def head_answered(self, prompt: Prompt, turn: Turn) -> None:
        """Take the whole answer."""
        ...

    def head_failed(self, prompt: Prompt, problem: Problem) -> None:
        """Know that there is none."""
        ...


class Head(Listener):
    """From the moment that a prompt heads its session to the end of its turn."""

    def __init__(
        self,
        prompt: Prompt,
        build: Callable[[Prompt], tuple[Call | Problem, Sequence[Message]]],
        owner: Owner,
        around: Surroundings,
        rooms: Rooms,
    ) -> None:
        self.prompt = prompt
        self._build = build  # makes the request, and says which messages are in it
        self._owner = owner
        self._around = around
        self._rooms = rooms
        self._number = rooms.number()
        self._turn: Turn | None = None
        self._waiter: Waiter | None = None  # while it waits for room
        self._limit: TimerHandle | None = None

    def submit(self) -> None:
        """Become a request; it may be over before this returns."""
        try:
            call, messages = self._build(self.prompt)
            if isinstance(call, Problem):
                self.turn_failed(None, call)
                return
            self._turn = Turn(call, messages, self, waits_for_nodes=self.prompt.recovered)
            self._turn.submit(self._around.relay)
        except Exception:  # a bug of ours must not hold up the line
            logger.exception("a prompt could not be submitted")
            self.stop()
            problem = Problem("internal_error", "an internal error; the log has the details")
            self._owner.head_failed(self.prompt, problem)

    def stop(self) -> None:
        """Have nothing more done for it, wherever it is; nobody is told. May be called twice."""
        self._finish()
        if self._turn is not None:
            self._turn.stop()

    # -- from the turn

    def turn_waits(self, turn: Turn) -> None:
        """Stand in the queue."""
        exchange = turn.exchange
        if exchange is not None:
            self._found_room()
            self._owner.head_waits(self.prompt, exchange.position, exchange.estimate_s)

    def turn_starts(self, turn: Turn) -> None:
        """Run."""
        if turn.exchange is not None:
            self._found_room()
            self._owner.head_starts(self.prompt, turn.exchange)

    def turn_says(self, turn: Turn, text: str, thoughts: str) -> None:
        """Pass a piece on."""
        self._owner.head_says(self.prompt, text, thoughts)

    def turn_answered(self, turn: Turn) -> None:
        """Hand over the answer."""
        self._finish()
        self._owner.head_answered(self.prompt, turn)

    def turn_failed(self, turn: Turn | None, problem: Problem) -> None:
        """Hand over the reason."""
        self._finish()
        self._owner.head_failed(self.prompt, problem)

    def turn_found_no_room(self, turn: Turn, problem: Problem) -> None:
        """Wait until there is room."""
        sender = self.prompt.sender
        self._turn = None
        self._limit = self._limit or self._limited(problem)
        self._waiter = self._rooms.wait(
            self.submit,
            (self._around.rank_of(sender.priority), self._number),
            awaited(problem.code, turn.call.model, sender.key, sender.user),
            len(turn.call.body),
        )
        self._owner.head_waits(self.prompt, None, problem.retry_after_s)

    # -- inside

    def _limited(self, problem: Problem) -> TimerHandle:
        limit_s, own_s = self._around.wait_s_max(), self.prompt.sender.max_wait_s
        if own_s is not None:
            limit_s = min(limit_s, own_s)

        def too_long() -> None:
            words = f"waited {limit_s:.1f} s for room in the queue, which is as long as it may"
            self.turn_failed(None, Problem("queue_timeout", words, None, problem.retry_after_s))

        clock = self._around.clock
        return clock.call_at(clock.monotonic_s() + limit_s, too_long)

    def _found_room(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _finish(self) -> None:
        self._found_room()
        if self._waiter is not None:
            self._waiter.leave()
