"""Prompts of a session from sending to their end: the local limit, events, and the result.

The limit counts the prompts under way by session id and client, however many session clients there
are; each of them holds its own limit against that one count. A reservation is taken before the
request is sent and released exactly once, whatever becomes of the prompt. The server's own limit
(`PromptQueueFullError`) is the one that holds between clients.

A fast turn may end before the answer to its own request is here. So while a request is under way,
events of prompts that nobody knows are kept, and handed over when the answer names its prompt.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.api.sessions import PromptAccepted, SessionTurn
from forebay.sdk.errors import (
    BadAnswer,
    ClientClosed,
    NotFound,
    PendingPromptLimitError,
    SdkError,
    SessionEnded,
    TurnFailed,
)
from forebay.sdk.session_api import PromptRequest, Subscription, session_path
from forebay.sdk.transport import decoded
from forebay.sdk.values import SessionEvent, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from forebay.sdk.transport import Transport

EARLY_EVENTS_MAX = 2048
"""Beyond it only ends are kept, as many again: the end of a turn holds its whole text."""
TERMINAL = ("turn_complete", "turn_error")
EVENTS_MAX = 2048
"""As many as the gateway itself holds for a session."""
MAX_PENDING = 5
"""The gateway's own default (`sessions.max_pending_prompts`)."""


class PromptSender:
    """Sends prompts and follows them: one for a client and all its session clients."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.reservations = PromptReservations()

    async def send(
        self, prompts: OpenPrompts, session_id: str, request: PromptRequest, limit: int | None
    ) -> AsyncSentPrompt:
        """Hand in a prompt; raises PendingPromptLimitError before anything is sent, and SdkError.

        The reservation is given back where that fails or is cancelled, else by the prompt's end.
        """
        reservation = self.reservations.take(session_id, limit)
        prompts.begin()
        try:
            status, _, content = await self.transport.fetch(request.call(session_id))
            if status == 200:  # of a server that answers with the turn itself
                prompt = AsyncSentPrompt("", reservation, 0)
                prompt.settle(_turn(decoded(content, dict[str, Any])))
                return prompt
            return prompts.accept(decoded(content, PromptAccepted), reservation)
        except BaseException:
            reservation.release()
            raise
        finally:
            prompts.finish()

    async def follow(self, subscription: Subscription, prompts: OpenPrompts) -> None:
        """Read events until they end for good; then whatever is still open ends, too."""
        end: SdkError = ClientClosed("the client was closed while it waited")
        try:
            await subscription.run()
            end = SessionEnded("the session was closed")
        except SdkError as error:
            end = error
        finally:
            prompts.fail(end)

    async def prompt_once(
        self,
        session_id: str,
        request: PromptRequest,
        limit: int | None,
        on_event: Callable[[SessionEvent], object] | None,
    ) -> Turn:
        """Send a prompt and follow its session only until it has ended."""
        prompts = OpenPrompts(self.transport, session_id)
        prompt = await self.send(prompts, session_id, request, limit)
        subscription = Subscription(self.transport, session_id, prompt.after_event_id, prompts)
        following = self.transport.tasks.start(self.follow(subscription, prompts))
        try:
            return await prompt.finish_with(on_event)
        finally:
            await self.transport.tasks.end(following)


class OpenPrompts:
    """What is waited for in one session."""

    def __init__(self, transport: Transport, session_id: str) -> None:
        self._transport = transport
        self._session_id = session_id
        self._open: dict[str, AsyncSentPrompt] = {}
        self.readers: set[EventBuffer] = set()
        """Of those who read every event of the session."""
        self._early: list[SessionEvent] = []
        self._asking = 0
        """Requests that have not been answered yet."""
        self._epoch = ""
        self._is_uncertain = False
        """Events may have been lost, and the gateway has not been asked yet."""

    def begin(self) -> None:
        """Say that a prompt is being sent: from now on keep what may be its events."""
        self._asking += 1

    def finish(self) -> None:
        """Say that the sending has ended, well or not."""
        self._asking -= 1
        if not self._asking:
            self._early.clear()

    def accept(self, accepted: PromptAccepted, reservation: PromptReservation) -> AsyncSentPrompt:
        """Take in an accepted prompt, with what has been heard of it already."""
        prompt = AsyncSentPrompt(accepted.prompt_id, reservation, accepted.last_event_id)
        self._open[prompt.prompt_id] = prompt
        for event in self._early:
            if event.prompt_id == prompt.prompt_id:
                self._hand_over(event, prompt)
        self.note_epoch(accepted.event_epoch)
        return prompt

    def take_event(self, event: SessionEvent) -> None:
        for reader in self.readers:
            reader.add(event)
        epoch = event.data.get("eventEpoch")
        if event.type == "gap":
            self._is_uncertain = True
        if isinstance(epoch, str):
            self.note_epoch(epoch)
        prompt = self._open.get(event.prompt_id or "")
        if prompt is not None:
            self._hand_over(event, prompt)
        elif self._asking:
            most = EARLY_EVENTS_MAX * (2 if event.type in TERMINAL else 1)
            if len(self._early) < most:
                self._early.append(event)

    def note_epoch(self, epoch: str) -> None:
        """Notice that the gateway has been restarted."""
        if self._epoch and epoch and epoch != self._epoch:
            self._is_uncertain = True
        self._epoch = epoch or self._epoch

    def mark_uncertain(self) -> None:
        """Note that events may have been lost."""
        self._is_uncertain = True

    async def check_outcomes(self) -> None:
        """Ask what became of each open prompt; one that cannot be asked now is asked later."""
        if not self._is_uncertain:
            return
        self._is_uncertain = False
        for prompt_id, prompt in tuple(self._open.items()):
            path = session_path(self._session_id, "turns", prompt_id)
            try:
                prompt.take_state(await self._transport.get(path, SessionTurn))
            except NotFound as gone:
                error = {"code": "outcome_unknown", "message": gone.message}
                prompt.settle(TurnFailed(prompt_id, "failed", error))
            except SdkError:
                self._is_uncertain = True
            self._forget_if_done(prompt)

    def fail(self, error: SdkError) -> None:
        """End all that is waited for: no more events will come."""
        for prompt in tuple(self._open.values()):
            prompt.settle(error)
        self._open.clear()
        for reader in self.readers:
            reader.end()

    def _hand_over(self, event: SessionEvent, prompt: AsyncSentPrompt) -> None:
        prompt.take_event(event)
        self._forget_if_done(prompt)

    def _forget_if_done(self, prompt: AsyncSentPrompt) -> None:
        if prompt.done:
            self._open.pop(prompt.prompt_id, None)


class AsyncSentPrompt:
    """What `send` returns: the prompt's events as they come, and its result.

    Its reservation is given back when it ends, however that is: completed, failed, given up, or the
    events of its session ended for good.
    """

    def __init__(self, prompt_id: str, reservation: PromptReservation, after_event_id: int) -> None:
        self.prompt_id = prompt_id
        self.after_event_id = after_event_id
        """Its events have larger ids."""
        self._reservation = reservation
        self._buffer = EventBuffer()
        self._ended = asyncio.Event()
        self._outcome: Turn | SdkError | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None

    async def result(self) -> Turn:
        """Wait for the end; raises TurnFailed, or the SdkError that made waiting pointless.

        Cancelling the wait leaves the prompt as it is; it may be waited for again.
        """
        await self._ended.wait()
        if isinstance(self._outcome, Turn):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def events(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield its events, the terminal one last; for one reader."""
        return self._buffer.read()

    async def finish_with(self, on_event: Callable[[SessionEvent], object] | None) -> Turn:
        """Return the result, telling every event before; gives up where this is cancelled."""
        try:
            if on_event is not None:
                async for event in self.events():
                    on_event(event)
            return await self.result()
        finally:
            self.give_up()

    # -- for those who bring the events

    def take_event(self, event: SessionEvent) -> None:
        if self.done:
            return
        self._buffer.add(event)
        if event.type not in TERMINAL:
            return
        try:
            self.settle(_outcome(event, self.prompt_id))
        except BadAnswer as error:
            self.settle(error)

    def take_state(self, state: SessionTurn) -> None:
        """Take what the gateway says when it is asked."""
        if state.status == "completed":
            self.settle(Turn(self.prompt_id, state.text or "", state.finish_reason, state.usage))
        elif state.status in ("failed", "cancelled"):
            error = None if state.error is None else msgspec.to_builtins(state.error)
            self.settle(TurnFailed(self.prompt_id, state.status, error))

    def settle(self, outcome: Turn | SdkError) -> None:
        """End it, once."""
        if self._outcome is None:
            self._outcome = outcome
            self.give_up()
            self._buffer.end()
            self._ended.set()

    def give_up(self) -> None:
        """Give its place in the local count back; the gateway goes on with it."""
        self._reservation.release()


def _outcome(event: SessionEvent, prompt_id: str) -> Turn | TurnFailed:
    if event.type == "turn_error":
        error = event.data.get("error")
        status = str(event.data.get("status") or "failed")
        return TurnFailed(prompt_id, status, error if isinstance(error, dict) else None)
    return _turn(event.data)


def _turn(data: dict[str, Any]) -> Turn:
    """Return a completed turn; raises BadAnswer."""
    try:
        return msgspec.convert({"promptId": "", **data}, Turn)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"a turn that cannot be read: {error}") from error


class EventBuffer:
    """A line of events that ends; may be read by one reader at a time."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[SessionEvent] = deque()
        self._events_max = events_max
        self._lost: tuple[int, int] | None = None
        """The first and the last id of what was dropped since the last read."""
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, event: SessionEvent) -> None:
        """Put one at the end; the oldest is dropped where there are too many."""
        self._events.append(event)
        if len(self._events) > self._events_max:
            dropped = self._events.popleft().id
            self._lost = (dropped if self._lost is None else self._lost[0], dropped)
        self._changed.set()

    def end(self) -> None:
        """Say that no more will come; what is here can still be read."""
        self._ended = True
        self._changed.set()

    async def read(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield events until the end; a `gap` where some were dropped."""
        while True:
            if self._lost is not None:
                first, last = self._lost
                self._lost = None
                yield SessionEvent("gap", last, None, {"missedFrom": first, "missedTo": last})
            elif self._events:
                yield self._events.popleft()
            elif self._ended:
                return
            else:
                self._changed.clear()
                await self._changed.wait()


def checked_limit(value: float | None) -> int | None:
    """Return a `max_pending` as a number, None for no limit; raises ValueError.

    >>> checked_limit(5), checked_limit(0), checked_limit(None), checked_limit(float("inf"))
    (5, None, None, None)
    """
    if value is None or value == 0 or value == math.inf:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or value < 0 or value != int(value):
        raise ValueError(
            f"max_pending: {value!r} is not a whole number of prompts; 0 or None means no limit"
        )
    return int(value)


class PromptReservation:
    """The right to have one prompt under way."""

    def __init__(self, counts: dict[str, int], session_id: str) -> None:
        self._counts = counts
        self._session_id = session_id
        self._held = True
        counts[session_id] = counts.get(session_id, 0) + 1

    def release(self) -> None:
        """Give it back; the second time does nothing."""
        if not self._held:
            return
        self._held = False
        left = self._counts[self._session_id] - 1
        if left:
            self._counts[self._session_id] = left
        else:
            del self._counts[self._session_id]


class PromptReservations:
    """The counts of one client."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, session_id: str, limit: int | None) -> PromptReservation:
        """Take one more; raises PendingPromptLimitError where that would be more than the limit."""
        held = self.held(session_id)
        if limit is not None and held >= limit:
            raise PendingPromptLimitError(session_id, limit, held)
        return PromptReservation(self._counts, session_id)

    def held(self, session_id: str) -> int:
        """Return how many prompts of a session are under way here."""
        return self._counts.get(session_id, 0)
