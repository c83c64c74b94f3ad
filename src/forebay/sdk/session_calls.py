"""The routes of a session, each as one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct

from forebay.sdk.chatting import waiting_headers
from forebay.sdk.errors import BadAnswer
from forebay.sdk.transport import Call, decoded
from forebay.sdk.values import Accepted, Message, PendingPrompts, SessionState, Turn

if TYPE_CHECKING:
    from forebay.sdk.transport import Transport
    from forebay.sdk.values import Prompt

BRANCH_S = 3600.0
"""The answer comes when the session's other prompts are done."""


def session_path(session_id: str, *more: str) -> str:
    """Return the path of a session, or of something in it; an id may be anything.

    >>> session_path("s1", "turns", "a/b")
    '/session/s1/turns/a%2Fb'
    """
    return "/".join(["/session", *(quote(part, safe="") for part in (session_id, *more))])


class PromptRequest(NamedTuple):
    """A prompt as it is asked for."""

    prompt: Prompt
    deadline_ms: float | None = None
    """How long it may take in all, from acceptance; may only shorten the gateway's own."""
    priority: str | None = None

    def call(self, session_id: str) -> Call:
        """Return it as it is sent."""
        said = "prompt" if isinstance(self.prompt, str) else "messages"
        body: dict[str, Any] = {
            said: self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        }
        if self.deadline_ms is not None:
            body["deadlineMs"] = self.deadline_ms
        headers = waiting_headers(self.priority)
        return Call("POST", session_path(session_id, "prompt"), body, headers)


class _Made(Struct, rename="camel"):
    session_id: str


class _Messages(Struct):
    messages: list[dict[str, Any]]


class _Removed(Struct):
    removed: bool


class Cancelled(Struct, frozen=True, rename="camel"):
    """What a cancellation hit."""

    prompt_id: str | None
    cancelled: bool


class SessionCalls:
    """Asks about sessions; raises SdkError throughout."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def make(self, body: dict[str, Any]) -> str:
        """Make a session and return its id."""
        return (await self._transport.ask(Call("POST", "/session", body), _Made)).session_id

    async def state(self, session_id: str) -> SessionState:
        """Return a session as the gateway sees it."""
        return await self._transport.get(session_path(session_id), SessionState)

    async def messages(self, session_id: str) -> list[Message]:
        """Return the history, as it would be sent."""
        path = session_path(session_id, "messages")
        return list((await self._transport.get(path, _Messages)).messages)

    async def send(self, session_id: str, request: PromptRequest) -> Accepted | Turn:
        """Hand in a prompt; a Turn where the server answers at once, as older ones do."""
        status, _, content = await self._transport.fetch(request.call(session_id))
        if status == 200:
            return _legacy_turn(content)
        return decoded(content, Accepted)

    async def pending(self, session_id: str) -> PendingPrompts:
        """Return the prompts that wait or run."""
        return await self._transport.get(
            session_path(session_id, "pending-prompts"), PendingPrompts
        )

    async def remove(self, session_id: str, prompt_id: str) -> bool:
        """Take a queued prompt out; False where that was done before."""
        call = Call("DELETE", session_path(session_id, "pending-prompts", prompt_id))
        return (await self._transport.ask(call, _Removed)).removed

    async def cancel(self, session_id: str, prompt_id: str | None = None) -> Cancelled:
        """End the running prompt, if there is one; with an id, only if it is that one."""
        body = None if prompt_id is None else {"promptId": prompt_id}
        call = Call("POST", session_path(session_id, "cancel"), body)
        return await self._transport.ask(call, Cancelled)

    async def branch(self, session_id: str) -> str:
        """Make another session of this one's history, when its turn comes; return its id."""
        call = Call("POST", session_path(session_id, "branch"), read_s=BRANCH_S)
        return (await self._transport.ask(call, _Made)).session_id

    async def delete(self, session_id: str) -> None:
        """End a session, with all that waits in it."""
        await self._transport.fetch(Call("DELETE", session_path(session_id)))


def _legacy_turn(content: bytes) -> Turn:
    data = decoded(content, dict[str, Any])
    try:
        return msgspec.convert({"promptId": "", **data}, Turn)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"an answer that cannot be read: {error}") from error
