"""Sessions: conversations that the gateway holds, with a bounded queue of prompts each."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from msgspec import Meta

from forebay.api.fields import (
    Always,
    Count,
    RequestBody,
    ResponseBody,
    Seconds,
    Sometimes,
    one_of,
    unchecked,
)

SESSION_OPTIONS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "logit_bias", "response_format", "reasoning_effort",
    "chat_template_kwargs",
)  # fmt: skip
"""What a session may set beside the model, its system prompt and its limit."""
ROLES = ("user", "assistant", "system")

_Options: TypeAlias = Annotated[
    dict[str, Any],
    unchecked(properties={name: {} for name in SESSION_OPTIONS}, additionalProperties=False),
]


class SessionRequest(RequestBody, forbid_unknown_fields=True, rename="camel"):
    """The body of `POST /session`."""

    model: Annotated[str, Meta(min_length=1, max_length=512)]
    system: str | None = None
    """What the model is told first, always."""
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """The most that one answer may take."""
    options: _Options = {}
    """What else the node is asked with."""


class MessagePart(RequestBody):
    """A part of a message; only texts are taken."""

    type: str
    text: str = ""


class SessionMessage(RequestBody, forbid_unknown_fields=True):
    """A message of a prompt."""

    role: Annotated[str, one_of(*ROLES)]
    content: str | list[MessagePart]
    """A text, or a list of parts of type `text`."""


class Prompt(RequestBody, forbid_unknown_fields=True, rename="camel"):
    """The body of `POST /session/{id}/prompt`."""

    prompt: str | None = None
    """What the user says; or give `messages`."""
    messages: list[SessionMessage] | None = None
    deadline_ms: Annotated[Any, unchecked(type=["number", "null"], exclusiveMinimum=0)] = None
    """May only shorten `sessions.prompt_deadline_ms`."""


class CancelRequest(RequestBody, forbid_unknown_fields=True, rename="camel"):
    """The body of `POST /session/{id}/cancel`, which may be left out."""

    prompt_id: str | None = None
    """End this prompt only, if it is the one that runs."""


class SessionMade(ResponseBody, frozen=True, rename="camel"):
    """What the creation of a session answers."""

    session_id: str


class SessionClosed(SessionMade, frozen=True):
    """What the end of a session answers."""

    state: Literal["closed"] = "closed"


class SessionLine(ResponseBody, frozen=True, rename="camel"):
    """A session in a list."""

    session_id: str
    model: str = ""
    status: Annotated[str, one_of("idle", "queued", "running", "closing")] = "idle"
    pending: Count = 0
    """Prompts that wait or run."""
    turns: Count = 0
    created_at: Always[Seconds] = None
    """Seconds since 1970."""
    used_at: Always[Seconds] = None
    owner: Sometimes[str] = None
    """The name of its key; for admins only."""


class SessionList(ResponseBody, frozen=True):
    """Some of the sessions, the newest first."""

    data: list[SessionLine]
    has_more: bool = False
    next: Sometimes[str] = None
    """The value of `before` for the next page."""
    incomplete: Sometimes[list[str]] = None
    """Gateways that did not list theirs in time."""


class Session(ResponseBody, frozen=True, rename="camel"):
    """A session as the gateway sees it."""

    session_id: str
    model: str
    system: str | None = None
    max_tokens: int | None = None
    options: dict[str, Any] = {}
    state: Annotated[str, one_of("open", "closing")] = "open"
    pending_count: Count = 0
    """Prompts that count against the limit."""
    queued_count: Count = 0
    """Those of them that wait."""
    limit: int | None = None
    """Prompts that may be pending; null is no limit."""
    active_prompt_id: str | None = None
    turns: Count = 0
    """Completed turns that are remembered."""
    dropped_turns: Count = 0
    """Turns that no longer fitted."""
    context_tokens: int | None = None
    """What fits into the model's context; null where no node says."""
    created_at: Always[Seconds] = None
    """Seconds since 1970."""
    last_event_id: Count = 0
    """Events after this number are what is still to come."""
    event_epoch: str = ""
    """Changes when the gateway has been restarted."""


class PromptAccepted(ResponseBody, frozen=True, rename="camel"):
    """The 202 of a prompt."""

    prompt_id: str
    last_event_id: Count
    """Events after this number are what is still to come."""
    event_epoch: str = ""
    """Changes when the gateway has been restarted."""


class PromptQueueFull(ResponseBody, frozen=True, rename="camel"):
    """The 503 of a prompt over the cap."""

    error: str
    session_id: str
    limit: Count
    pending_count: Count
    code: Literal["prompt_queue_full"] = "prompt_queue_full"


class RememberedMessage(TypedDict):
    """A message of a conversation."""

    role: str
    content: str


class SessionMessages(ResponseBody, frozen=True, rename="camel"):
    """What a session remembers."""

    session_id: str = ""
    messages: list[RememberedMessage] = []


class PendingPrompt(ResponseBody, frozen=True, rename="camel"):
    """A prompt that waits or runs."""

    prompt_id: str
    text: str = ""
    """The beginning of what it says."""
    queued_at: Always[Seconds] = None
    state: Annotated[str, one_of("queued", "running")] = "queued"
    originator: Always[str] = None
    """The user who sent it."""


class PendingPrompts(ResponseBody, frozen=True, rename="camel"):
    """All of a session's, and their limit."""

    session_id: str
    limit: int | None = None
    """Prompts that may be pending; null is no limit."""
    pending_count: Count = 0
    prompts: tuple[PendingPrompt, ...] = ()


class PromptRemoved(ResponseBody, frozen=True, rename="camel"):
    """What the removal of a prompt answers."""

    prompt_id: str
    removed: bool
    """False where it was over already."""


class PromptCancelled(ResponseBody, frozen=True, rename="camel"):
    """What a cancellation hit."""

    prompt_id: str | None
    cancelled: bool


class TokenUsage(ResponseBody, frozen=True, rename="camel"):
    """What a turn cost, as the node counts."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class TurnError(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    """Why a turn has no answer."""

    code: str
    message: str
    retry_after_ms: Sometimes[Count] = None


class SessionTurn(ResponseBody, frozen=True, rename="camel"):
    """The outcome of a prompt, as far as there is one."""

    prompt_id: str
    status: Annotated[str, one_of("queued", "running", "completed", "failed", "cancelled")]
    error: TurnError | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None


# -- JSON-RPC


class RpcRequest(RequestBody):
    """A call over JSON-RPC 2.0."""

    jsonrpc: Literal["2.0"]
    method: str
    """`session/new`, `session/prompt`, `session/cancel`, `session/branch`."""
    id: str | float | None = None
    params: dict[str, Any] = {}


RpcCall = Annotated[
    RpcRequest | list[RpcRequest], Meta(description="A call, or a batch of at most 64 of them.")
]
RpcAnswer = Annotated[
    dict[str, Any] | list[dict[str, Any]],
    Meta(description="An answer for each call that has an id; 204 where none has."),
]
