"""A node's answer, and what it says: its tokens, what the node has not, how long it is busy.

**Tokens.** `usage` in the last 8 KiB of the answer, else the count of stream events, else a quarter
of its bytes. Nothing is added to the request to get it. A node is not trusted with these numbers,
which a key is charged: a prompt has no more tokens than bytes, an answer neither, and one that was
broken off has at least those that came, whatever the node had said of it by then.

**Absences.** A missing model and a missing route are both 404 to most servers, and mean different
things: a node without the model has changed, and is asked anew; one without the route is well, and
another node of the model may have it. Real servers tell them apart in words. A missing model is
named, or called one: vLLM "The model `x` does not exist.", Ollama "model 'x' not found", LM Studio
and OpenAI `model_not_found`. A missing route is not: llama.cpp "File Not Found", FastAPI (vLLM,
SGLang) "Not Found", Ollama "404 page not found". 405 and 501 are about the route wherever not every
server has it: llama.cpp says 501 of embeddings and ranking unless it was started for them. Of
routes that generate text, 501 is about a field. LM Studio says 200 and "Unexpected endpoint or
method".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from forebay.relay.call import InferenceCall
    from forebay.wire.heads import AnswerHead

HOLD_BYTES: Final = 262_144
"""How much of a unary answer is held back until it is whole: nearly all of them are smaller."""
BUFFER_BYTES: Final = 8_388_608
"""The same for a stream under `retry.stream = "buffer"`; a longer one is passed on from there."""
TAIL_BYTES: Final = 8192
"""How much of an answer's end is searched for its usage."""
PASSED_BYTES: Final = 4096
"""How much is kept of a stream that is passed on, until all but its end is forgotten. It is little:
what a thousand streams keep has to stay in the processor's cache."""
STREAM_TAIL_BYTES: Final = 2048
CAUSE_BYTES: Final = 2048
"""How much of a node's own words is told where its answer itself cannot be passed on."""
BUSY_S: Final = 1.0
"""How long a busy node is left alone that does not say how long."""
BUSY_S_MAX: Final = 60.0
ABSENCE_BYTES: Final = 4096
"""How much of an answer is searched for what is absent: whoever says more says something else."""

Absent: TypeAlias = Literal["", "model", "route"]

_INPUT = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*(\d{1,9})')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens|eval_count)"\s*:\s*(\d{1,9})')
_USAGE: Final = b'"usage"'
_PROMPT_COUNT: Final = b'"prompt_eval_count"'
_OUTPUT_COUNT: Final = b'"eval_count"'
_NAMES: Final = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
_COUNTS: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(
    msgspec.defstruct("_Counts", [(name, int, -1) for name in _NAMES], gc=False)
)
_OLLAMA_COUNTS: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(
    msgspec.defstruct(
        "_OllamaCounts", [("prompt_eval_count", int, -1), ("eval_count", int, -1)], gc=False
    )
)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TOKENS_MAX: Final = 1_000_000_000
_NO_ROUTE = re.compile(
    rb"not found|not_found|cannot post|no route|nothing at|method not allowed"
    rb"|(?:unknown|invalid|unexpected|unsupported) (?:endpoint|route|path|url)"
)
_UNEXPECTED: Final = b"unexpected endpoint or method"


class Answer:
    """What has come of one answer: the whole until it may reach the sink, then its end."""

    __slots__ = (
        "_events", "forgotten_bytes", "head", "is_stream", "length", "node", "pieces", "size_bytes",
    )  # fmt: skip

    def __init__(self, head: AnswerHead, length: bytes | None, node: str, is_stream: bool) -> None:
        self.head = head
        self.length = length
        """Of the body, where the head says it."""
        self.node = node
        """Who gives it."""
        self.is_stream = is_stream
        self.pieces: list[bytes] = []
        self.size_bytes = self.forgotten_bytes = 0
        self._events = 0  # of a stream, in what has been forgotten

    def forget_passed(self, event_mark: bytes) -> None:
        """Keep but the end of what has been passed on, and the number of events before it."""
        passed = b"".join(self.pieces)
        cut = max(0, len(passed) - STREAM_TAIL_BYTES)
        # Those that begin before it:
        self._events += passed.count(event_mark, 0, cut + len(event_mark) - 1)
        self.pieces = [passed[cut:]]
        self.forgotten_bytes += cut

    def count_events(self, event_mark: bytes) -> int:
        """Return how many events of a stream have come."""
        return self._events + b"".join(self.pieces).count(event_mark)

    def ends_a_line(self) -> bool:
        return b"".join(self.pieces[-1:]).endswith(b"\n")

    def makes_sense(self, call: InferenceCall) -> bool:
        """Say whether a whole one is neither empty nor, if it should be JSON, something else."""
        if self.pieces if self.is_stream else is_json(self.pieces):
            return True
        return call.route in call.family.media_routes  # a transcript may be plain text


# -- tokens


def count_tokens(
    pieces: list[bytes], events: int, size_bytes: int, prompt_bytes: int, *, bare: bool, whole: bool
) -> tuple[int, int]:
    """Return prompt and output tokens, as well as they can be known; -1 is unknown.

    `bare` says that the node's own counts have no `usage` around them, `whole` that the answer is
    not broken off.
    """
    if not size_bytes:
        return -1, -1
    tail = pieces[0] if len(pieces) == 1 else b"".join(pieces)[-TAIL_BYTES:]
    prompt, output = _read_counts(tail) if bare else read_usage(tail)
    if output < 0 or not whole:
        output = max(output, events or (size_bytes + 3) // 4)
        prompt = prompt or -1
    return min(prompt, prompt_bytes), min(output, size_bytes)


def read_usage(tail: bytes | bytearray) -> tuple[int, int]:
    """Return prompt and output tokens as the node counted them; -1 where it does not say.

    >>> read_usage(b'..."usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46}}')
    (12, 34)
    """
    start = tail.rfind(_USAGE)
    if start < 0:
        return _read_counts(tail)
    if isinstance(tail, bytes):
        both = _read_flat(tail, start)
        if both[0] >= 0:
            return both
    prompt, output = _INPUT.search(tail, start), _OUTPUT.search(tail, start)
    return int(prompt[1]) if prompt else -1, int(output[1]) if output else -1


def _read_counts(tail: bytes | bytearray) -> tuple[int, int]:
    """Read what Ollama says, which has no object around its counts.

    >>> _read_counts(b'{"done":true,"prompt_eval_count":12,"eval_count":34,"eval_duration":5}')
    (12, 34)
    """
    if isinstance(tail, bytes) and len(tail) <= TAIL_BYTES:
        both = _read_last_line(tail)
        if both[1] >= 0:
            return both
    output_at, prompt_at = tail.rfind(_OUTPUT_COUNT), tail.rfind(_PROMPT_COUNT)
    output = _OUTPUT.match(tail, output_at) if output_at >= 0 else None
    prompt = _INPUT.match(tail, prompt_at) if prompt_at >= 0 else None
    return int(prompt[1]) if prompt else -1, int(output[1]) if output else -1


def _read_last_line(tail: bytes) -> tuple[int, int]:
    """Read counts from a whole answer, or from the last line of a stream; else -1, -1.

    >>> _read_last_line(b'{"done":false}\\n{"done":true,"eval_count":34}\\n')
    (-1, 34)
    """
    line = tail.rstrip()
    at = line.rfind(b"\n")
    try:
        counts = _OLLAMA_COUNTS.decode(line[at + 1 :] if at >= 0 else line)
    except _UNREADABLE:
        return -1, -1
    prompt: int = counts.prompt_eval_count
    output: int = counts.eval_count
    return (prompt, output) if -1 <= prompt < _TOKENS_MAX and output < _TOKENS_MAX else (-1, -1)


def _read_flat(tail: bytes, start: int) -> tuple[int, int]:
    """Read a `usage` that has no object in it, as most have; else -1, -1.

    That takes a third of what the two regular expressions take.

    >>> _read_flat(b'"usage":{"prompt_tokens":12,"total_tokens":46,"completion_tokens":34}', 0)
    (12, 34)
    >>> _read_flat(b'"usage":{"input_tokens":12,"output_tokens":34}', 0)
    (12, 34)
    """
    begin, end = start + len(_USAGE) + 1, tail.find(b"}", start) + 1
    if end <= begin:
        return -1, -1  # compiled, a slice that ends before it begins is a SystemError
    try:
        counts = _COUNTS.decode(tail[begin:end])
    except _UNREADABLE:
        return -1, -1
    prompt: int = counts.prompt_tokens
    output: int = counts.completion_tokens
    if prompt < 0 or output < 0:
        prompt, output = counts.input_tokens, counts.output_tokens
    return (prompt, output) if 0 <= prompt < _TOKENS_MAX and 0 <= output < _TOKENS_MAX else (-1, -1)


# -- errors and refusals


def is_json(pieces: list[bytes]) -> bool:
    """Say whether a whole answer can be JSON, by its first letter; an empty one cannot."""
    if not pieces:
        return False
    first = pieces[0]
    if first.startswith(b"{") or first.startswith(b"["):  # noqa: PIE810 - each is one C call
        return True
    return b"".join(pieces).lstrip()[:1] in (b"{", b"[")


def said(status: int, body: bytes) -> str:
    """Return what a node said with an error, in one line for people.

    >>> said(500, b'{"error": "no"}')
    'the node answered 500: {"error": "no"}'
    """
    return f"the node answered {status}: {body[:CAUSE_BYTES].decode(errors='replace')}"


def not_a_stream(status: int, body: bytes) -> str:
    """Say what an answer was, to one who cannot be given it: a stream has begun already."""
    if status < 400:
        return f"the node answered {status}, no stream, after one had begun"
    return said(status, body)


def busy_s(retry_after: bytes | None) -> float:
    """Return how long to leave a node alone that says it is busy."""
    if retry_after is None or not retry_after.isdigit():
        return BUSY_S
    return min(max(float(retry_after), BUSY_S), BUSY_S_MAX)


def what_is_absent(status: int, body: bytes, model: str, *, is_rare: bool) -> Absent:
    """Say what a node does not have, as far as its answer says so.

    `is_rare` says that not every server has the route.
    """
    text = body[:ABSENCE_BYTES].lower()
    if status == 404:
        return _of_404(text, model)
    if status == 405 or (status == 501 and is_rare):
        return "route"
    return "route" if status == 200 and is_rare and _UNEXPECTED in text else ""


def route_missing(route: str, node: str, status: int, body: bytes) -> Problem:
    """Return the problem of a request for whose route there is no node; one has said this."""
    details: dict[str, object] = {"cause": said(status, body[:ABSENCE_BYTES]), "node": node}
    return Problem("route_not_supported", missing_route_message(route), "model", None, details)


def missing_route_message(route: str) -> str:
    """Say that a route is missing."""
    return f"no node of this model has {route}"


def _names(text: bytes, model: str) -> bool:
    """Say whether a text names a model, and not a word that has its letters."""
    name = re.escape(model.lower().encode())
    return bool(name) and re.search(rb"(?<![\w.:/-])" + name + rb"(?![\w.:/-])", text) is not None


def _of_404(text: bytes, model: str) -> Absent:
    if b"route_not_supported" in text:  # another gateway
        return "route"
    if b"model" in text or _names(text, model):
        return "model"
    return "route" if not text.strip() or _NO_ROUTE.search(text) is not None else "model"
