"""The Ollama family: `/api/chat` and its kin. Streams are lines of JSON, without comments."""

import msgspec
from msgspec import UNSET, UnsetType

from forebay.relay.family import Family
from forebay.relay.fields import FieldsReader, Flag, Limit, Name, Text, bounded_limit
from forebay.relay.problem import Problem, Unsupported
from forebay.wire.heads import AnswerHead


class OllamaOptions(msgspec.Struct, gc=False):
    """The member `options`, of which only the limit is read."""

    num_predict: Limit = UNSET


class OllamaFields(msgspec.Struct, gc=False):
    """What is read of a body; everything else passes through untouched."""

    model: Name
    stream: Flag = UNSET
    user: Text = UNSET
    options: OllamaOptions | UnsetType | None = UNSET

    def named_user(self) -> str | None:
        """Return the end user, if the caller names one."""
        return self.user or None

    def tier(self) -> str | None:
        """Return nothing: this family has no such field."""
        return None

    def output_limit(self) -> int:
        """Return the caller's own cap on output tokens, 0 for none (-1 and -2 mean none too)."""
        return bounded_limit(self.options.num_predict) if self.options else 0

    def unsupported(self) -> Unsupported | None:
        """Everything of this family is passed on."""
        return None


class OllamaLooseFields(OllamaFields, gc=False):
    """The same of a body that need not name a model, or calls it `name` as clients once did."""

    model: Name = ""
    name: Name = ""


def error_body(problem: Problem, message: str, _status: int = 500) -> dict[str, object]:
    """Return `{"error": "text", "code": ...}` as the Ollama clients read it."""
    body = {"error": message, "code": problem.code, **problem.details}
    if problem.param is not None:
        body["param"] = problem.param
    return body


def stream_error(problem: Problem, message: str, _status: int = 500) -> bytes:
    """Return a last line."""
    return msgspec.json.encode(error_body(problem, message)) + b"\n"


OLLAMA = Family(
    name="ollama",
    routes=("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"),
    reader=FieldsReader(OllamaFields, ("options", "num_predict")),
    loose_reader=FieldsReader(OllamaLooseFields, ("options", "num_predict")),
    streams_by_default=True,
    unary_routes=("/api/embed", "/api/embeddings"),
    free_routes=("/api/show",),
    stream_type=b"application/x-ndjson",
    stream_head=AnswerHead(200, [(b"content-type", b"application/x-ndjson")]),
    comments=False,
    begins=(b"{",),
    event_mark=b"\n",
    error=error_body,
    stream_error=stream_error,
)
