"""The OpenAI family: `/v1/chat/completions` and its kin."""

import msgspec
from msgspec import UNSET

from forebay.relay.family import Family
from forebay.relay.fields import FieldsReader, Flag, Limit, Name, Text, bounded_limit
from forebay.relay.problem import Problem, Unsupported
from forebay.wire.heads import AnswerHead


class OpenAIFields(msgspec.Struct, gc=False):
    """What is read of a body; everything else passes through untouched."""

    model: Name
    stream: Flag = UNSET
    user: Text = UNSET
    service_tier: Text = UNSET
    max_tokens: Limit = UNSET
    max_completion_tokens: Limit = UNSET
    max_output_tokens: Limit = UNSET
    previous_response_id: Text = UNSET
    background: Flag = UNSET

    def named_user(self) -> str | None:
        """Return the end user, if the caller names one."""
        return self.user or None

    def tier(self) -> str | None:
        """Return the class that the caller asks for in the body."""
        return self.service_tier or None

    def output_limit(self) -> int:
        """Return the caller's own cap on output tokens, 0 for none."""
        return bounded_limit(self.max_completion_tokens, self.max_tokens, self.max_output_tokens)

    def unsupported(self) -> Unsupported | None:
        """Say what is asked for that needs stored answers, which no node here keeps."""
        if self.previous_response_id:
            return Unsupported("previous_response_id", "stored responses are not offered")
        if self.background:
            return Unsupported("background", "background responses are not offered")
        return None


class OpenAILooseFields(OpenAIFields, gc=False):
    """The same of a body that need not name a model."""

    model: Name = ""


def error_body(problem: Problem, message: str, _status: int = 500) -> dict[str, object]:
    """Return `{"error": {...}}` as the OpenAI SDKs read it."""
    return {
        "error": {
            "message": message,
            "type": problem.code,
            "code": problem.code,
            "param": problem.param,
            **problem.details,
        }
    }


def stream_error(problem: Problem, message: str, _status: int = 500) -> bytes:
    """Return a last data event; no `[DONE]` follows it."""
    return b"data: " + msgspec.json.encode(error_body(problem, message)) + b"\n\n"


MEDIA = (
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
)
UNARY = ("/v1/embeddings", "/v1/rerank", "/v1/moderations", *MEDIA)

OPENAI = Family(
    name="openai",
    routes=("/v1/chat/completions", "/v1/completions", "/v1/responses", *UNARY),
    reader=FieldsReader(OpenAIFields),
    loose_reader=FieldsReader(OpenAILooseFields),
    streams_by_default=False,
    unary_routes=(*UNARY, "/v1/audio/*", "/v1/images/*"),
    media_routes=(*MEDIA, "/v1/audio/*", "/v1/images/*"),
    prefixes=("/v1/audio/", "/v1/images/"),
    free_routes=("/tokenize", "/detokenize"),
    stream_type=b"text/event-stream",
    stream_head=AnswerHead(200, [(b"content-type", b"text/event-stream")]),
    comments=True,
    begins=(b"data", b"event", b"id", b"retry", b":", b"\n", b"\r", b"\xef\xbb\xbf"),
    event_mark=b"data:",
    error=error_body,
    stream_error=stream_error,
)
