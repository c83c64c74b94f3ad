"""What a node has answered so far: what is held back, and what can be learned from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.nodes.adapters.report import says_loading
from forebay.relay.usage import TAIL_BYTES, read_usage

if TYPE_CHECKING:
    from forebay.relay.family import Family
    from forebay.wire.heads import AnswerHead


HOLD_BYTES: Final = 262_144
"""How much of a unary answer is held back until it is whole: nearly all of them are smaller."""
BUFFER_BYTES: Final = 8_388_608
"""The same for a stream under `retry.stream = "buffer"`; a longer one is passed on from there."""
CAUSE_BYTES: Final = 2048
"""How much of a node's own words is told where its answer itself cannot be passed on."""
REST_S: Final = 1.0  # how long a busy node rests that does not say how long
REST_S_MAX: Final = 60.0


class Answer:
    """One attempt's answer; an attempt that fails takes it along."""

    __slots__ = (
        "_family", "_tail", "events", "head", "held", "held_bytes", "is_stream", "length",
        "node", "size_bytes", "status",
    )  # fmt: skip

    def __init__(
        self, head: AnswerHead, length: bytes | None, family: Family, *, asked: bool
    ) -> None:
        """Begin. `asked` for a stream or not, the answer says what it is: nodes may differ."""
        self.status = head.status
        self.head = head
        self.length = length
        self.node = ""  # who gave it, where it is kept beyond its attempt
        self._family = family
        kind = head.content_type
        self.is_stream = head.status == 200 and (
            kind.startswith(family.stream_type) or (asked and b"json" not in kind)
        )
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.size_bytes = 0
        self.events = 0
        self._tail = b""

    def hold(self, data: bytes) -> None:
        """Keep a piece until the answer may reach its sink."""
        self.held.append(data)
        self.held_bytes += len(data)

    def release(self) -> list[bytes]:
        """Return what was held; from now on pieces pass by."""
        held, self.held = self.held, []
        if not self.is_stream and held:
            self._tail = held[-1] if len(held) == 1 else b"".join(held)[-TAIL_BYTES:]
        return held

    def look_at(self, data: bytes) -> None:
        """Learn from a piece that passes by: how many events, and the end of the text."""
        if self.is_stream:
            self.events += data.count(self._family.event_mark)
        tail = self._tail + data
        self._tail = tail if len(tail) <= 2 * TAIL_BYTES else tail[-TAIL_BYTES:]

    def begins_as_a_stream(self, data: bytes) -> bool:
        """Say whether the first piece of a stream can be the beginning of one."""
        begins = self._family.begins
        return data.startswith(begins) or any(begin.startswith(data) for begin in begins)

    def is_garbage(self) -> bool:
        """Say whether a whole answer is empty, or unary and cannot be the JSON it should be."""
        if self.status >= 300:
            return False
        if self.is_stream or not self.held:
            return not self.held
        first = self.held[0]
        if first.startswith(b"{") or first.startswith(b"["):  # noqa: PIE810 - each is one C call
            return False
        return b"".join(self.held).lstrip()[:1] not in (b"{", b"[")

    def is_server_error(self) -> bool:
        """Say whether it is a 5xx that may be the request's own fault; 501 is a plain refusal."""
        return self.status >= 500 and self.status != 501

    def says_loading(self) -> bool:
        """Say whether a 503 says that the model is being loaded: so llama.cpp, TGI and others."""
        return says_loading(b"".join(self.held))

    def cause(self, held: list[bytes]) -> str:
        """Say what it was, to one who cannot be given it: a stream has begun already."""
        if self.status < 400:
            return f"the node answered {self.status}, no stream, after one had begun"
        return said(self.status, b"".join(held))

    def is_cut_off(self) -> bool:
        """Say whether a stream that only the end of its connection ends has ended in mid-event."""
        return self.is_stream and not self.head.framed and not self._tail.endswith(b"\n")

    def tokens(self) -> tuple[int, int]:
        """Return prompt and output tokens, as well as they can be known; -1 is unknown."""
        if not self.size_bytes:
            return -1, -1
        tail = self._tail or (self.held[-1] if self.held else b"")
        prompt, output = read_usage(tail)
        if output < 0:
            output = self.events or self.size_bytes // 4
        return prompt, output


def said(status: int, body: bytes) -> str:
    """Return what a node said with an error, in one line for people.

    >>> said(500, b'{"error": "no"}')
    'the node answered 500: {"error": "no"}'
    """
    return f"the node answered {status}: {body[:CAUSE_BYTES].decode(errors='replace')}"


def rest_s(retry_after: bytes | None) -> float:
    """Return how long a node rests that says it is busy."""
    if retry_after is None or not retry_after.isdigit():
        return REST_S
    return min(max(float(retry_after), REST_S), REST_S_MAX)
