"""A prompt that the gateway has accepted, and its one end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.sdk.errors import BadAnswer, SdkError, TurnFailed
from forebay.sdk.event_buffer import EventBuffer
from forebay.sdk.values import Turn, TurnState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from forebay.sdk.reservations import Reservation
    from forebay.sdk.values import SessionEvent

TERMINAL = ("turn_complete", "turn_error")


class AsyncSentPrompt:
    """What `send` returns: the prompt's events as they come, and its result.

    Its reservation is given back when it ends, however that is: completed, failed, given up, or the
    events of its session ended for good.
    """

    def __init__(self, prompt_id: str, reservation: Reservation, after_event_id: int) -> None:
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

    async def told(self, on_event: Callable[[SessionEvent], object] | None) -> Turn:
        """Return the result, telling every event before; gives up where this is cancelled."""
        try:
            if on_event is not None:
                async for event in self.events():
                    on_event(event)
            return await self.result()
        finally:
            self.give_up()

    # -- for those who bring the events

    def hear(self, event: SessionEvent) -> None:
        """Take one of its events."""
        if self.done:
            return
        self._buffer.add(event)
        if event.type not in TERMINAL:
            return
        try:
            self.settle(_outcome(event, self.prompt_id))
        except BadAnswer as error:
            self.settle(error)

    def hear_state(self, state: TurnState) -> None:
        """Take what the gateway says when it is asked."""
        if state.status == "completed":
            self.settle(Turn(self.prompt_id, state.text or "", state.finish_reason, state.usage))
        elif state.status in ("failed", "cancelled"):
            self.settle(TurnFailed(self.prompt_id, state.status, state.error))

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
    return turn_of(event.data)


def turn_of(data: dict[str, Any]) -> Turn:
    """Return a completed turn; raises BadAnswer."""
    try:
        return msgspec.convert(data, Turn)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"a turn that cannot be read: {error}") from error
