"""The prompts of one session that have not ended, and the events that belong to them.

A fast turn may end before the answer to its own request is here. So while a request is under way,
events of prompts that nobody knows are kept, and handed over when the answer names its prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.sdk.errors import NotFound, SdkError, TurnFailed
from forebay.sdk.sent_prompt import TERMINAL, AsyncSentPrompt
from forebay.sdk.session_calls import session_path
from forebay.sdk.values import TurnState

if TYPE_CHECKING:
    from forebay.sdk.reservations import Reservation
    from forebay.sdk.transport import Transport
    from forebay.sdk.values import Accepted, SessionEvent

EARLY_EVENTS_MAX = 2048
"""Beyond it only ends are kept, as many again: the end of a turn holds its whole text."""


class OpenPrompts:
    """What is waited for in one session."""

    def __init__(self, transport: Transport, session_id: str) -> None:
        self._transport = transport
        self._session_id = session_id
        self._open: dict[str, AsyncSentPrompt] = {}
        self._early: list[SessionEvent] = []
        self._asking = 0
        """Requests that have not been answered yet."""
        self._epoch = ""
        self._is_doubtful = False
        """Events may have been lost, and the gateway has not been asked yet."""

    def begin(self) -> None:
        """Say that a prompt is being sent: from now on keep what may be its events."""
        self._asking += 1

    def finish(self) -> None:
        """Say that the sending has ended, well or not."""
        self._asking -= 1
        if not self._asking:
            self._early.clear()

    def accept(self, accepted: Accepted, reservation: Reservation) -> AsyncSentPrompt:
        """Take in an accepted prompt, with what has been heard of it already."""
        prompt = AsyncSentPrompt(accepted.prompt_id, reservation, accepted.last_event_id)
        self._open[prompt.prompt_id] = prompt
        for event in self._early:
            if event.prompt_id == prompt.prompt_id:
                self._hand_over(event, prompt)
        self.note_epoch(accepted.event_epoch)
        return prompt

    def hear(self, event: SessionEvent) -> None:
        """Take any event of the session."""
        epoch = event.data.get("eventEpoch")
        if event.type == "gap":
            self._is_doubtful = True
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
            self._is_doubtful = True
        self._epoch = epoch or self._epoch

    def doubt(self) -> None:
        """Note that events may have been lost."""
        self._is_doubtful = True

    async def resolve_doubt(self) -> None:
        """Ask what became of each; where nobody can say now, the doubt stays."""
        if not self._is_doubtful:
            return
        self._is_doubtful = False
        for prompt_id, prompt in tuple(self._open.items()):
            path = session_path(self._session_id, "turns", prompt_id)
            try:
                prompt.hear_state(await self._transport.get(path, TurnState))
            except NotFound as gone:
                error = {"code": "outcome_unknown", "message": gone.message}
                prompt.settle(TurnFailed(prompt_id, "failed", error))
            except SdkError:
                self._is_doubtful = True
            self._forget_if_done(prompt)

    def fail(self, error: SdkError) -> None:
        """End all that is waited for: no more events will come."""
        for prompt in tuple(self._open.values()):
            prompt.settle(error)
        self._open.clear()

    def _hand_over(self, event: SessionEvent, prompt: AsyncSentPrompt) -> None:
        prompt.hear(event)
        self._forget_if_done(prompt)

    def _forget_if_done(self, prompt: AsyncSentPrompt) -> None:
        if prompt.done:
            self._open.pop(prompt.prompt_id, None)
