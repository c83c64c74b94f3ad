"""What the client hands out: small, frozen, and named as the gateway names things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | Sequence[Message]
"""What is said: one thing by the user, or messages as OpenAI has them."""

JOB_ENDED = ("completed", "failed", "cancelled")
BATCH_ENDED = ("completed", "failed", "expired", "cancelled")


class Usage(Struct, frozen=True):
    """What an answer cost, in tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


# -- a chat


class Queued(Struct, frozen=True):
    """It waits. The place is 1-based; the estimate is None while nothing has been measured."""

    position: int
    estimate_s: float | None = None


class Started(Struct, frozen=True):
    """A node has it. `node` is None until the gateway has named it."""

    node: str | None = None
    waited_ms: int | None = None


class Delta(Struct, frozen=True):
    """A piece of the answer, or of what a thinking model thinks first."""

    text: str
    reasoning: str = ""


class Answer(Struct, frozen=True):
    """A whole answer."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """Calls the model asks for, in OpenAI's form."""
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    node: str | None = None
    waited_ms: int | None = None
    """How long it stood in line; None where neither a header nor a comment said so."""
    position: int | None = None
    """Its place on arrival, where it had to wait."""
    request_id: str | None = None


class Done(Struct, frozen=True):
    """The end of a stream, with all that came."""

    answer: Answer


Piece: TypeAlias = Queued | Started | Delta | Done


# -- looking in


class QueueState(Struct, frozen=True):
    """The whole queue, in aggregates."""

    waiting: int
    processing: int
    max_size: int
    average_wait_seconds: float = 0.0
    average_service_seconds: float = 0.0
    by_priority: dict[str, int] = {}
    processing_jobs: int = 0
    rejected_total: int = 0
    timeouts_total: int = 0
    served_total: int = 0


class EstimatedWait(Struct, frozen=True):
    """How long it may take from now, in seconds; None while nothing has been measured."""

    p50: float | None = None
    p90: float | None = None


class BetterNode(Struct, frozen=True):
    """A busy node that a request waits for, though another is free."""

    node: str
    why: str = ""
    """`memory`, `prompt` or `speed`: what gains most."""
    seconds_gained: float = 0.0
    """How much sooner it is expected to end there."""
    seconds_left: float = 0.0
    """How long it waits for that node at most."""
    times_as_fast: float = 0.0
    cached_tokens: int = 0
    prompt_tokens: int = 0


class Place(Struct, frozen=True):
    """Where one request stands, and why."""

    id: str
    state: str
    position: int | None = None
    estimated_wait_seconds: EstimatedWait = EstimatedWait()
    waited_seconds: float = 0.0
    reason: str | None = None
    better_node: BetterNode | None = None
    timeline: tuple[dict[str, Any], ...] = ()


class ListedRequest(Struct, frozen=True):
    """One request of the list; None is what does not apply, or is not known."""

    id: str
    state: str
    """`waiting`, `running` or `ended`."""
    outcome: str | None = None
    status: int | None = None
    model: str = ""
    user: str = ""
    priority: str = ""
    position: int | None = None
    estimated_wait_seconds: EstimatedWait | None = None
    waited_seconds: float = 0.0
    node: str | None = None
    attempt: int = 0
    reason: str | None = None
    reason_code: str | None = None
    prompt_tokens: int = 0
    output_limit: int = 0
    body_bytes: int = 0
    arrived: float = 0.0
    """Unix time."""


class RequestPage(Struct, frozen=True):
    """Requests, the newest first."""

    data: tuple[ListedRequest, ...]
    has_more: bool = False
    incomplete: tuple[str, ...] = ()
    """Gateways of a fleet whose requests are missing, because they did not answer."""


class Limits(Struct, frozen=True, rename="camel"):
    """Where the gateway's limits are."""

    max_pending_prompts_per_session: int | None = None
    queue_max_size: int | None = None
    max_wait_seconds: float | None = None
    body_max_bytes: int | None = None


class Capabilities(Struct, frozen=True):
    """What the gateway offers. `limits.max_pending_prompts_per_session` is a `max_pending`."""

    version: str
    limits: Limits = Limits()
    priorities: tuple[str, ...] = ()
    families: dict[str, tuple[str, ...]] = {}
    build: str = ""


class Health(Struct, frozen=True):
    """The gateway is alive."""

    status: str
    version: str = ""


# -- jobs and batches


class Job(Struct, frozen=True):
    """Durable work. A list and a submission leave out what is large: ask for it by its id."""

    id: int
    status: str
    type: str = ""
    is_new: bool = True
    """False where a submission met the same work still under way."""
    job_id: int | None = None
    model: str | None = None
    priority: str = "normal"
    idempotency_key: str | None = None
    stage: str | None = None
    attempt: int = 0
    error: str | None = None
    error_code: str | None = None
    created_at: float | None = None
    """Seconds since 1970, as the other times."""
    started_at: float | None = None
    finished_at: float | None = None
    params: Any = None
    result: Any = None
    """For chat, completion, embedding and response: the node's answer."""
    traceback: str | None = None
    owner: str | None = None
    """The name of its key; only admins are told."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status in JOB_ENDED


class RequestCounts(Struct, frozen=True):
    """How many lines of a batch are done."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class Batch(Struct, frozen=True):
    """A file of requests at the gateway."""

    id: str
    status: str
    endpoint: str = ""
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: RequestCounts = RequestCounts()
    errors: dict[str, Any] | None = None
    created_at: float | None = None
    """Seconds since 1970, as the other times; None where it has not come to that."""
    in_progress_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    expired_at: float | None = None
    cancelled_at: float | None = None
    expires_at: float | None = None
    metadata: dict[str, str] | None = None
    owner: str | None = None
    """The name of its key; only admins are told."""
    models: list[str] = []
    """Those that its lines ask for, as far as they have been read."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status in BATCH_ENDED


class BatchResult(Struct, frozen=True):
    """The result of one line."""

    custom_id: str
    response: dict[str, Any] | None = None
    """`status_code`, `request_id` and `body`, where a node answered."""
    error: dict[str, Any] | None = None
    """`code` and `message`, where it failed."""

    @property
    def body(self) -> Any:
        """Return what the node answered, or None."""
        return None if self.response is None else self.response.get("body")


# -- sessions


class SessionEvent(Struct, frozen=True):
    """One event of a session: `text_delta`, `turn_complete`, `gap`, ...; `data` is as it came."""

    type: str
    id: int
    prompt_id: str | None = None
    data: dict[str, Any] = {}


class SessionUsage(Struct, frozen=True, rename="camel"):
    """What a turn cost, as sessions say it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Turn(Struct, frozen=True, rename="camel"):
    """A turn that was completed."""

    prompt_id: str
    text: str
    finish_reason: str | None = None
    usage: SessionUsage | None = None
    model: str | None = None
    node: str | None = None
    waited_ms: int | None = None


class TurnState(Struct, frozen=True, rename="camel"):
    """What `/turns/{promptId}` says."""

    prompt_id: str
    status: str
    error: dict[str, Any] | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: SessionUsage | None = None


class SessionState(Struct, frozen=True, rename="camel"):
    """A session as the gateway sees it."""

    session_id: str
    model: str
    system: str | None = None
    state: str = "open"
    pending_count: int = 0
    queued_count: int = 0
    limit: int | None = None
    active_prompt_id: str | None = None
    turns: int = 0
    dropped_turns: int = 0
    context_tokens: int | None = None
    created_at: float | None = None
    last_event_id: int = 0
    event_epoch: str = ""


class SessionLine(Struct, frozen=True, rename="camel"):
    """A session in a list."""

    session_id: str
    model: str = ""
    status: str = "idle"
    """`idle`, `queued`, `running` or `closing`."""
    pending: int = 0
    turns: int = 0
    created_at: float | None = None
    used_at: float | None = None
    owner: str | None = None
    """The name of its key; only admins are told."""


class SessionList(Struct, frozen=True):
    """Some of the sessions, the newest first."""

    data: list[SessionLine]
    has_more: bool = False
    next: str | None = None
    """Ask with it as `before` for more."""
    incomplete: list[str] = []
    """Gateways that did not list theirs in time."""


class PendingPrompt(Struct, frozen=True, rename="camel"):
    """A prompt that waits or runs."""

    prompt_id: str
    text: str = ""
    state: str = "queued"
    queued_at: float | str | None = None
    originator: str | None = None


class PendingPrompts(Struct, frozen=True, rename="camel"):
    """All of a session's, and their limit."""

    session_id: str
    limit: int | None = None
    pending_count: int = 0
    prompts: tuple[PendingPrompt, ...] = field(default_factory=tuple)


class Accepted(Struct, frozen=True, rename="camel"):
    """The 202 of a prompt."""

    prompt_id: str
    last_event_id: int
    event_epoch: str = ""
