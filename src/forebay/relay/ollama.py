"""The Ollama family: `/api/chat` and its kin. Streams are lines of JSON, without comments."""

import msgspec
from msgspec import UNSET, UnsetType

from forebay.relay.family import Family
from forebay.relay.fields import FieldsReader, Flag, Limit, Name, Text, Told
from forebay.relay.problem import Problem
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

    def told(self) -> Told:
        """Name no class: this family has none. Of limits -1 and -2 mean none, too."""
        return self.user, None, self.options.num_predict if self.options else None, None


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
    unary_routes=frozenset(("/api/embed", "/api/embeddings")),
    free_routes=("/api/show",),
    stream_type=b"application/x-ndjson",
    stream_head=AnswerHead(200, [(b"content-type", b"application/x-ndjson")]),
    comments=False,
    begins=(b"{",),
    event_mark=b"\n",
    bare_counts=True,
    error=error_body,
    stream_error=stream_error,
)
