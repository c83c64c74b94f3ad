"""The Sink port: whatever receives an answer. A client connection, a job, a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forebay.relay.exchange import Exchange
    from forebay.relay.problem import Problem
    from forebay.wire.heads import AnswerHead


class Sink(Protocol):
    """Hears an answer once: `head`, any number of `chunk`s, `end`; or `failed` at any point.

    A sink that cannot keep up calls `Exchange.pause` and later `resume`; one that has lost
    interest calls `Exchange.cancel` and hears nothing more. Inherit from it where the sink is
    compiled, too: such a call takes 4 ns, and one of a method that merely has the same name 21. A
    sink that stays interpreted must not inherit (mypyc refuses to make one), and has every method.
    """

    __slots__ = ()

    def waits(self, exchange: Exchange) -> None:
        """Know that it stands in line; the exchange says where, and perhaps how long."""
        return

    def starts(self, exchange: Exchange) -> None:
        """Know that it has left the line for a node; what never waited starts without a word."""
        return

    def head(self, head: AnswerHead, length: bytes | None, exchange: Exchange) -> None:
        """Take the head of the answer, and its length where that is known."""
        ...

    def chunk(self, data: bytes) -> None:
        """Take a piece of the answer."""
        ...

    def end(self) -> None:
        """Know that the answer is whole."""
        ...

    def failed(self, problem: Problem, exchange: Exchange) -> None:
        """Know that there is no answer, or no more of it."""
        ...
