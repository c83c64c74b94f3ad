"""What is told of an answer: how long it took, and to its node that it came.

The times are taken from what an exchange knows anyway; no clock is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import Finished

if TYPE_CHECKING:
    from forebay.nodes.backend import Backend
    from forebay.relay.exchange import Exchange


def finished(exchange: Exchange, *, ok: bool) -> Finished:
    """Return what ends it, with the times that are known: a whole answer has no first byte."""
    first_byte_s: float | None = None
    ran_s: float | None = None
    if exchange.first_byte_s:
        first_byte_s = exchange.first_byte_s - exchange.started_s
        ran_s = exchange.heard_s - exchange.started_s if exchange.heard_s else first_byte_s
    return Finished(
        exchange.id, ok, exchange.prompt_tokens, exchange.output_tokens, exchange.strike,
        first_byte_s if exchange.is_stream else None, ran_s, exchange.why,
    )  # fmt: skip


def note_first_byte(exchange: Exchange, backend: Backend | None) -> None:
    """Tell a node of an answer that has begun, and more of a stream."""
    if backend is None:
        return
    if exchange.status < 500:
        backend.health.answered_s = exchange.first_byte_s
    if exchange.is_stream:
        backend.began(exchange.model)


def note_answer(exchange: Exchange, backend: Backend | None, status: int) -> None:
    """Tell a node of an answer that is whole, well or a refusal, while others go on."""
    if backend is not None and (status < 500 or status == 501):
        backend.answered(exchange.model, ok=status < 400)
