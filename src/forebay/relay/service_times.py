"""What a node is told of its own answers: that they came, and how long they took.

The times are for the slots that are found by trying. They are taken from what an exchange knows
anyway; no clock is asked. A prompt is as long as it was estimated to be on arrival: that is known
of every request, and at its first byte already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.nodes.slot_rounds import Sample

if TYPE_CHECKING:
    from forebay.nodes.backend import Backend
    from forebay.relay.exchange import Exchange
    from forebay.wire.deadlines import Deadlines


def note_first_byte(exchange: Exchange, backend: Backend) -> None:
    """Tell of a stream that has begun well."""
    prompt_tokens = exchange.call.arrival.prompt_tokens
    backend.began(exchange.model, prompt_tokens, exchange.started_s, exchange.first_byte_s)


def note_answer(
    exchange: Exchange, backend: Backend, silent: Deadlines[Exchange], *, ok: bool
) -> None:
    """Tell of an answer that is whole, well (`ok`) or a refusal, while others have not begun."""
    backend.answered(exchange.model, ok=ok)
    if not ok or backend.limit is None:
        return
    started_s, begun_s = exchange.started_s, exchange.first_byte_s
    ended_s = exchange.heard_s or begun_s  # an answer that comes whole ends where it begins
    if backend.limit.tries_more:
        here = [one for one in silent.members() if one.node == backend.name]
        sent = [(one.model, one.call.arrival.prompt_tokens, one.started_s) for one in here]
        backend.silent(sent, ended_s)
    sample = Sample(
        exchange.model,
        exchange.call.arrival.prompt_tokens,
        max(0, exchange.output_tokens),
        begun_s - started_s,
        ended_s - begun_s,
    )
    is_full = exchange.waits_for == "busy"  # others wait although slots are free
    backend.measured(sample, started_s, ended_s, is_full=is_full)
