"""The Anthropic family: `/v1/messages` and its kin."""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from forebay.relay.family import Family
from forebay.relay.fields import FieldsReader, Flag, Limit, Name, Told
from forebay.relay.openai import OPENAI
from forebay.relay.problem import Problem
from forebay.wire.heads import AnswerHead


class Metadata(msgspec.Struct, gc=False):
    """Where this family names the end user."""

    user_id: str | None = None


class AnthropicFields(msgspec.Struct, gc=False):
    """What is read of a body; everything else passes through untouched."""

    model: Name
    stream: Flag = UNSET
    max_tokens: Limit = UNSET
    metadata: Metadata | UnsetType | None = UNSET

    def told(self) -> Told:
        """Name no class: this family's `service_tier` is about something else."""
        return self.metadata.user_id if self.metadata else None, None, self.max_tokens, None


class AnthropicLooseFields(AnthropicFields, gc=False):
    """The same of a body that need not name a model."""

    model: Name = ""


TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""What Anthropic calls an error of a status; its clients and agents go by that."""


def type_of(status: int) -> str:
    """Return what Anthropic calls an error of that status.

    >>> [type_of(status) for status in (429, 400, 499, 502)]
    ['rate_limit_error', 'invalid_request_error', 'invalid_request_error', 'api_error']
    """
    return TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def error_body(problem: Problem, message: str, status: int = 500) -> dict[str, object]:
    """Return `{"type": "error", "error": {...}}` as the Anthropic SDKs read it."""
    inner = {"type": type_of(status), "message": message, "code": problem.code, **problem.details}
    if problem.param is not None:
        inner["param"] = problem.param
    return {"type": "error", "error": inner}


def stream_error(problem: Problem, message: str, status: int = 500) -> bytes:
    """Return a last `event: error`."""
    body = error_body(problem, message, status)
    return b"event: error\ndata: " + msgspec.json.encode(body) + b"\n\n"


ANTHROPIC = Family(
    name="anthropic",
    routes=("/v1/messages",),
    reader=FieldsReader(AnthropicFields),
    loose_reader=FieldsReader(AnthropicLooseFields),
    free_routes=("/v1/messages/count_tokens",),
    streams_by_default=False,
    stream_type=b"text/event-stream",
    stream_head=AnswerHead(200, [(b"content-type", b"text/event-stream")]),
    comments=True,
    begins=OPENAI.begins,
    event_mark=b"data:",
    bare_counts=False,
    error=error_body,
    stream_error=stream_error,
)
