"""A prompt as it is sent, and a session's events over as many connections as it takes.

A connection that breaks is made again with `Last-Event-ID` and a growing, jittered pause. What the
gateway no longer holds it tells as a `gap`; then, after a restart, after an event that cannot be
read, and after long silence, the gateway is asked what became of the open prompts. So whoever waits
learns an end: by an event, by asking, or because the gateway stays away for AWAY_S_MAX.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from forebay.sdk.chat import waiting_headers
from forebay.sdk.errors import BadAnswer, GatewayAway
from forebay.sdk.transport import PASSING, ApiCall, Outage
from forebay.sdk.values import SessionEvent
from forebay.sse import SseComment

if TYPE_CHECKING:
    from forebay.sdk.errors import SdkError
    from forebay.sdk.transport import Transport
    from forebay.sdk.values import Prompt
    from forebay.sse import SseEvent

SILENCE_S = 60.0
"""The gateway sends a comment every 15 s; four times that is silence."""
HEARTBEATS_BEFORE_ASKING = 4
ID = re.compile("[0-9]{1,18}")
UNREADABLE_MAX = 3
"""Events in a row that cannot be read; then it is not a gateway that answers."""


def session_path(session_id: str, *more: str) -> str:
    """Return the path of a session, or of something in it; an id may be anything.

    >>> session_path("s1", "turns", "a/b")
    '/session/s1/turns/a%2Fb'
    """
    return "/".join(["/session", *(quote(part, safe="") for part in (session_id, *more))])


class PromptRequest(NamedTuple):
    """The body of a prompt request."""

    prompt: Prompt
    deadline_ms: float | None = None
    """How long it may take in all, from acceptance; may only shorten the gateway's own."""
    priority: str | None = None

    def call(self, session_id: str) -> ApiCall:
        said = "prompt" if isinstance(self.prompt, str) else "messages"
        body: dict[str, Any] = {
            said: self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        }
        if self.deadline_ms is not None:
            body["deadlineMs"] = self.deadline_ms
        headers = waiting_headers(self.priority)
        return ApiCall("POST", session_path(session_id, "prompt"), body, headers)


class SessionListener(Protocol):
    """The receiver of a session's events."""

    def take_event(self, event: SessionEvent) -> None: ...

    def mark_uncertain(self) -> None:
        """Note that events may have been lost."""
        ...

    async def check_outcomes(self) -> None:
        """Ask the gateway for what lost events would have said."""
        ...


class Subscription:
    """Reads one session's events until they end."""

    def __init__(
        self,
        transport: Transport,
        session_id: str,
        last_event_id: int,
        listener: SessionListener,
    ) -> None:
        self._transport = transport
        self._outage = Outage(transport)
        self._session_id = session_id
        self._listener = listener
        self.last_event_id = last_event_id
        """The last event that was heard."""
        self._heartbeats = 0
        self._unreadable = 0
        self._empty_connections = 0
        """Connections in a row that ended without an event."""

    async def run(self) -> None:
        """Read until the session is closed; raises the SdkError that ended it otherwise."""
        while True:
            problem: SdkError
            try:
                if await self._listen():
                    return
                self._empty_connections += 1
                if self._empty_connections > 1:
                    self._listener.mark_uncertain()
                problem = GatewayAway("the events of the session broke off", sent=True)
            except BadAnswer as error:
                self._unreadable += 1
                if self._unreadable >= UNREADABLE_MAX:
                    raise
                self._listener.mark_uncertain()
                problem = error
            except PASSING as error:
                problem = error
            await self._outage.wait(problem)
            await self._listener.check_outcomes()

    async def _listen(self) -> bool:
        """Hear events over one connection; True when the session has said that it is over."""
        path = session_path(self._session_id, "events")
        headers = {"last-event-id": str(self.last_event_id), "accept": "text/event-stream"}
        call = ApiCall("GET", path, headers=headers, is_repeatable=True, read_s=SILENCE_S)
        async with (
            self._transport.opened(call) as response,
            aclosing(self._transport.events(response)) as coming,
        ):
            async for found in coming:
                self._outage.end()
                if isinstance(found, SseComment):
                    self._note_heartbeat()
                elif self._take_event(found):
                    return True
                await self._listener.check_outcomes()
        return False

    def _take_event(self, frame: SseEvent) -> bool:
        """Take one frame; True where it is the last."""
        self._heartbeats = self._empty_connections = 0
        if ID.fullmatch(frame.id):  # also of one that cannot be read: else it would come again
            self.last_event_id = max(self.last_event_id, int(frame.id))
        event = _event(frame, self.last_event_id)
        if event is None:
            raise BadAnswer(f"an event that cannot be read: {frame.data[:80]!r}")
        self._unreadable = 0
        self._listener.take_event(event)
        return event.type == "session_closed"

    def _note_heartbeat(self) -> None:
        self._heartbeats += 1
        if self._heartbeats % HEARTBEATS_BEFORE_ASKING == 0:
            self._listener.mark_uncertain()


def _event(frame: SseEvent, event_id: int) -> SessionEvent | None:
    try:
        data: Any = msgspec.json.decode(frame.data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    prompt_id = data.get("promptId")
    kind = data.get("type") or frame.event
    if not isinstance(kind, str) or not isinstance(prompt_id, str | None):
        return None
    return SessionEvent(kind, event_id, prompt_id, data)
