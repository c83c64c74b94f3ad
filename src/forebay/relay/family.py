"""What tells one wire dialect from another; one file per family says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.relay.fields import FieldsReader  # noqa: TC001 - compiled, a dataclass needs its types
from forebay.wire.heads import AnswerHead  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.fields import Fields
    from forebay.relay.problem import Problem


@dataclass(frozen=True, eq=False)
class Family:
    """A wire dialect: OpenAI, Anthropic or Ollama."""

    name: str
    routes: tuple[str, ...]
    """Where a request takes a slot."""
    reader: FieldsReader
    """Reads what the gateway needs to know of a body."""
    loose_reader: FieldsReader
    """The same where a body need not name a model."""
    streams_by_default: bool
    """What an absent `stream` means."""
    stream_type: bytes
    """The content type of a stream."""
    stream_head: AnswerHead
    """The head of a stream that begins before a node has answered."""
    comments: bool
    """Whether a stream may carry comments, by which a waiting client is kept informed."""
    begins: tuple[bytes, ...]
    """What a stream of this family may begin with; anything else is garbage."""
    event_mark: bytes
    """Counted in a stream where the node does not say how many tokens it made."""
    bare_counts: bool
    """Whether a node says how many without a `usage` around it."""
    error: Callable[[Problem, str, int], object]
    """The error body, given the message in the caller's language and the HTTP status."""
    stream_error: Callable[[Problem, str, int], bytes]
    """The same inside a stream that has begun."""
    unary_routes: frozenset[str] = frozenset()
    """Where there are no streams, whatever the body says; not every server has them."""
    media_routes: tuple[str, ...] = ()
    """Where bodies may be forms with files, and answers anything: sound, pictures, plain text."""
    prefixes: tuple[str, ...] = ()
    """Where routes lie that are passed on without being known one by one."""
    free_routes: tuple[str, ...] = ()
    """Where a request takes no slot: it is answered without running the model."""

    def may_begin_with(self, data: bytes) -> bool:
        """Say whether the first piece of a stream can be the beginning of one."""
        begins = self.begins
        return data.startswith(begins) or any(begin.startswith(data) for begin in begins)

    def is_stream(self, fields: Fields, route: str) -> bool:
        if route in self.unary_routes:
            return False
        stream = fields.stream
        return stream if stream is True or stream is False else self.streams_by_default
