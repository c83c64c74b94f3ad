"""The gateway's own errors, in the forms of the three API families."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from forebay.api.fields import Count, ResponseBody, Seconds, Sometimes, unchecked

ErrorCode: TypeAlias = Annotated[str, unchecked(format="error code")]
"""One of the codes of `forebay.gateway.errors.codes`, which the document names."""


class _Details(ResponseBody, frozen=True, kw_only=True):
    """What an error may say beside its code and its message."""

    retry_after: Sometimes[Count] = None
    """Whole seconds after which to try again."""
    waited_seconds: Sometimes[Seconds] = None
    """How long it waited (`queue_timeout`, `no_node`)."""
    estimated_wait_seconds: Sometimes[Seconds] = None
    """The wait to expect (`deadline_unreachable`, `queue_full`)."""
    cause: Sometimes[str] = None
    """What the node did (`node_failed`)."""
    node: Sometimes[str] = None
    """Which node it ran on."""
    attempts: Sometimes[Count] = None
    """How often it was tried (`node_failed`)."""
    hint: Sometimes[str] = None
    """What the caller or the operator can do about it."""
    model: Sometimes[str] = None
    """The name that was asked for, cut to 80 letters (`model_not_found`)."""
    suggestions: Sometimes[list[str]] = None
    """Models that may have been meant (`model_not_found`)."""
    available: Sometimes[list[str]] = None
    """Else some of those there are, at most 3 (`model_not_found`)."""


class OpenAIErrorDetails(_Details, frozen=True, kw_only=True):
    """An error as OpenAI shows it."""

    message: str
    type: ErrorCode
    code: ErrorCode
    param: str | None


class OpenAIError(ResponseBody, frozen=True):
    """The body of an error, as OpenAI has it."""

    error: OpenAIErrorDetails


class AnthropicErrorDetails(_Details, frozen=True, kw_only=True):
    """An error as Anthropic shows it."""

    type: Annotated[str, unchecked(format="error type")]
    message: str
    code: ErrorCode
    param: Sometimes[str] = None


class AnthropicError(ResponseBody, frozen=True):
    """The body of an error, as Anthropic has it."""

    type: Literal["error"]
    error: AnthropicErrorDetails


class OllamaError(_Details, frozen=True, kw_only=True):
    """The body of an error, as Ollama has it."""

    error: str
    code: ErrorCode
    param: Sometimes[str] = None
