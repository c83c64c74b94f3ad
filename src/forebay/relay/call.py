"""One request as the relay takes it, and the port that takes its answer.

A call is parsed, authorised and independent of any socket; what takes its answer is a client
connection, a job or a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from forebay.relay.fields import cut_at_model, replace_model
from forebay.wire.budget import NOTHING

if TYPE_CHECKING:
    from forebay.core import Arrived
    from forebay.relay.exchange import Exchange
    from forebay.relay.family import Family
    from forebay.relay.fields import Frame
    from forebay.relay.problem import Problem
    from forebay.wire.budget import Charge
    from forebay.wire.heads import AnswerHead

COPIED_BYTES_MAX: Final = 262_144
"""A body that is larger is sent in pieces where its model is another: copying 31 MiB takes 5 ms."""


class InferenceCall:
    """What the scheduler is told of a request, and the exact bytes that a node is sent."""

    __slots__ = (
        "arrival", "asked_model", "body", "charge", "credentials", "family", "frame",
        "header_block", "model_span", "route", "target",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - it is a record
        self,
        arrival: Arrived,
        family: Family,
        *,
        route: str,
        target: bytes,
        body: bytes,
        asked_model: str,
        header_block: bytes = b"",
        credentials: bytes = b"",
        model_span: tuple[int, int] = (0, 0),
        frame: Frame | None = None,
        charge: Charge = NOTHING,
    ) -> None:
        self.arrival = arrival
        """Posted as it is. Its model is the one asked for, the alias resolved."""
        self.family = family
        self.route = route
        """The path without its query, for whoever counts."""
        self.target = target
        """The path and query that a node is asked for."""
        self.body = body
        self.asked_model = asked_model
        """What the body says; where another model runs, the body is rewritten when sent."""
        self.model_span = model_span
        """Where the body says it; known where it may have to be rewritten."""
        self.frame = frame
        """What is written around another model's name; None where that is JSON for JSON."""
        self.header_block = header_block
        """Headers for the node, as they are written on the wire; no credentials."""
        self.credentials = credentials
        """The caller's own credentials, for a node that has none configured; likewise written."""
        self.charge = charge
        """What the body takes of the memory that bodies may take."""

    def body_for(self, model: str) -> bytes | list[bytes | memoryview]:
        """Return the body to send where an alias or fallback changes the model."""
        if len(self.body) < COPIED_BYTES_MAX:
            return replace_model(self.body, self.model_span, model, self.frame)
        return cut_at_model(self.body, self.model_span, model, self.frame)

    def drop_body(self) -> None:
        """Let the body go: an answer has begun, and it will not be sent again."""
        self.body = b""
        self.charge.release()


class Sink(Protocol):
    """Hears an answer once: `head`, any number of `chunk`s, `end`; or `failed` at any point.

    A sink that cannot keep up calls `Exchange.pause` and later `resume`; one that has lost
    interest calls `Exchange.cancel` and hears nothing more. Inherit from it where the sink is
    compiled, too: such a call takes 4 ns, and one of a method that merely has the same name 21. A
    sink that stays interpreted must not inherit (mypyc refuses to make one), and has every method.
    """

    __slots__ = ()

    def waits(self, exchange: Exchange) -> None:
        """Know that it is queued; the exchange says where, and perhaps how long."""
        return

    def starts(self, exchange: Exchange) -> None:
        """Know that it has left the queue for a node; what never waited starts without a word."""
        return

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """Take the head of the answer, and its length where that is known."""
        ...

    def chunk(self, data: bytes, framed: bytes = b"") -> None:
        """Take a piece of the body; `framed` is the same as one chunk, where it came as one."""
        ...

    def end(self) -> None: ...

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        """Know that there is no answer, or no more of it."""
        ...
