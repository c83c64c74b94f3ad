"""One accepted prompt, from its acceptance to its one outcome."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from forebay.api.sessions import TokenUsage, TurnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.clock import TimerHandle
    from forebay.relay.problem import Problem
    from forebay.sessions.conversation import Message

Status: TypeAlias = Literal["accepting", "queued", "running", "completed", "failed", "cancelled"]
Cause: TypeAlias = Literal["stored", "started", "completed", "failed", "cancelled"]

TRANSITIONS: Mapping[tuple[Status, Cause], Status] = {
    ("accepting", "stored"): "queued",
    ("queued", "started"): "running",
    ("queued", "failed"): "failed",
    ("queued", "cancelled"): "cancelled",
    ("running", "completed"): "completed",
    ("running", "failed"): "failed",
    ("running", "cancelled"): "cancelled",
}
"""Every transition. `accepting` is a prompt that is being written to the ledger: it holds its place
in the queue and in the count, and its id has not been given to anybody."""

FINAL: tuple[Status, ...] = ("completed", "failed", "cancelled")
TEXT_SHOWN_MAX = 500
"""How much of a prompt listings of the queue show."""


class Sender(Struct, frozen=True):
    """For whom a prompt runs; what a request's headers would say."""

    key: str = ""
    """The name of its API key; empty without keys."""
    user: str = ""
    priority: str = "normal"
    max_wait_s: float | None = None
    credentials: bytes = b""
    """The caller's own, for a node that has none; never written to the ledger."""
    trace: str = ""
    """The caller's `traceparent`."""


class TurnResult(Struct, frozen=True):
    """The answer of a turn, or why there is none."""

    text: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    model: str = ""
    node: str = ""
    error: TurnError | None = None

    @classmethod
    def failed(cls, code: str, message: str) -> TurnResult:
        return cls(error=TurnError(code, message))

    @classmethod
    def from_problem(cls, problem: Problem) -> TurnResult:
        wait_s = problem.retry_after_s
        retry_ms = None if wait_s is None else ceil(wait_s * 1000)
        return cls(error=TurnError(problem.code, problem.message, retry_ms))


class Prompt:
    """A prompt that was admitted to a session."""

    __slots__ = (
        "accepted_at", "added", "deadline_at", "deadline_timer", "id", "is_published", "messages",
        "recovered", "result", "sender", "seq", "started_at", "status", "waited_ms",
    )  # fmt: skip

    def __init__(
        self, id: str, seq: int, messages: tuple[Message, ...], sender: Sender, accepted_at: float
    ) -> None:
        self.id = id
        self.seq = seq
        """Its place in the session, counted from 1."""
        self.messages = messages
        self.sender = sender
        self.accepted_at = accepted_at
        """Seconds since 1970, as are all times of a prompt: it may live longer than a process."""
        self.deadline_at: float | None = None
        self.deadline_timer: TimerHandle | None = None
        self.started_at: float | None = None
        self.waited_ms = 0
        self.status: Status = "accepting"
        self.result: TurnResult | None = None
        self.is_published = False
        """Whether its outcome is written, and so may be published."""
        self.recovered = False
        """Whether it was queued when the last process died: it waits until a node is up."""
        self.added = False
        """Whether it was announced as waiting: only then are its start and end, too."""

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome; it may still hold its place in the queue."""
        return self.status in FINAL

    def move(self, cause: Cause) -> None:
        """Go to the next state; a transition that is not in the table is a bug."""
        self.status = TRANSITIONS[self.status, cause]

    def terminal_event(self) -> tuple[str, dict[str, Any]]:
        """Return the type and the fields of the one event about its end."""
        result = self.result
        assert result is not None
        if result.error is not None:
            return "turn_error", {"status": self.status, "error": result.error}
        return "turn_complete", {
            "status": self.status,
            "text": result.text,
            "finishReason": result.finish_reason,
            "usage": result.usage,
            "model": result.model,
            "node": result.node,
            "waitedMs": self.waited_ms,
        }

    def text(self) -> str:
        """Return the beginning of its last message, for listings of the queue."""
        return self.messages[-1].content[:TEXT_SHOWN_MAX] if self.messages else ""
