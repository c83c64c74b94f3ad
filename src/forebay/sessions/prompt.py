"""One accepted prompt, from its acceptance to its one outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.clock import TimerHandle
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
"""Every move there is. `accepting` is a prompt that is being written to the ledger: it holds its
place in line and in the count, and has not been promised to anybody."""

FINAL: tuple[Status, ...] = ("completed", "failed", "cancelled")
TEXT_SHOWN_MAX = 500
"""How much of a prompt is shown to whoever looks at the line."""


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


class Usage(Struct, frozen=True, rename="camel"):
    """What a turn cost, as the node counts."""

    prompt_tokens: int
    completion_tokens: int


class TurnError(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a turn has no answer."""

    code: str
    message: str
    retry_after_ms: int | None = None


class Result(Struct, frozen=True):
    """What a turn came to."""

    text: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    node: str = ""
    error: TurnError | None = None


class Prompt:
    """A prompt that was admitted; its session moves it along."""

    __slots__ = (
        "accepted_at", "added", "deadline_at", "deadline_timer", "id", "messages",
        "recovered", "result", "sender", "seq", "started_at", "status", "told", "waited_ms",
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
        self.result: Result | None = None
        self.told = False
        """Whether its outcome is written, and so may be told."""
        self.recovered = False
        """Whether it waited when the last process died: it goes on waiting until a node is up."""
        self.added = False
        """Whether it was announced as waiting: only then are its start and end, too."""

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome; its place in line may still have to drain."""
        return self.status in FINAL

    def move(self, cause: Cause) -> None:
        """Go to the next state; a move that is not in the table is a bug."""
        self.status = TRANSITIONS[self.status, cause]

    def text(self) -> str:
        """Return the beginning of what it says, for whoever looks at the line."""
        return self.messages[-1].content[:TEXT_SHOWN_MAX] if self.messages else ""
