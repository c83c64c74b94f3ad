"""The OpenAI family: `/v1/chat/completions` and its kin."""

import msgspec
from msgspec import UNSET

from forebay.relay.family import Family
from forebay.relay.fields import FieldsReader, Flag, Limit, Name, Text, Told
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

    def told(self) -> Told:
        """Refuse what needs stored answers: no node here keeps any."""
        unsupported = None
        if self.previous_response_id:
            unsupported = Unsupported("previous_response_id", "stored responses are not offered")
        elif self.background:
            unsupported = Unsupported("background", "background responses are not offered")
        limit = self.max_completion_tokens or self.max_tokens or self.max_output_tokens
        return self.user, self.service_tier, limit, unsupported


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
    unary_routes=frozenset((*UNARY, "/v1/audio/*", "/v1/images/*")),
    media_routes=(*MEDIA, "/v1/audio/*", "/v1/images/*"),
    prefixes=("/v1/audio/", "/v1/images/"),
    free_routes=("/tokenize", "/detokenize"),
    stream_type=b"text/event-stream",
    stream_head=AnswerHead(200, [(b"content-type", b"text/event-stream")]),
    comments=True,
    begins=(b"data", b"event", b"id", b"retry", b":", b"\n", b"\r", b"\xef\xbb\xbf"),
    event_mark=b"data:",
    bare_counts=False,
    error=error_body,
    stream_error=stream_error,
)
