"""What the client hands out: small, frozen, and named as the gateway names things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from forebay.api.jobs import Job as ApiJob
from forebay.api.sessions import TokenUsage

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | Sequence[Message]
"""What is said: one thing by the user, or messages as OpenAI has them."""


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


# -- jobs and batches


class Job(ApiJob, frozen=True):
    """Durable work. A list and a submission leave out what is large: ask for it by its id."""

    is_new: bool = True
    """False where a submission met the same work still under way."""


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


class Turn(Struct, frozen=True, rename="camel"):
    """A turn that was completed."""

    prompt_id: str
    text: str
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    model: str | None = None
    node: str | None = None
    waited_ms: int | None = None
