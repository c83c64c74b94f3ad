"""What a node is told of its own answers: that they came, how long they took, how fast they come.

The times are for the slots that are found by trying. They are taken from what an exchange knows
anyway; no clock is asked. A prompt is as long as it was estimated to be on arrival: that is known
of every request, and at its first byte already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import Finished
from forebay.nodes.slot_rounds import Sample

if TYPE_CHECKING:
    from forebay.nodes.backend import Backend
    from forebay.nodes.stream_pace import Stream
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay


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


def note_first_byte(exchange: Exchange, backend: Backend | None, relay: Relay) -> None:
    """Tell of an answer that has begun, and more of a stream."""
    if backend is None:
        return
    if exchange.status < 500:
        backend.health.answered_s = exchange.first_byte_s
    if not exchange.is_stream:
        return
    prompt_tokens = exchange.call.arrival.prompt_tokens
    if backend.limit is not None and backend.limit.watches:  # first: as many write now
        _note_streams(backend, relay, exchange)
    backend.began(exchange.model, prompt_tokens, exchange.started_s, exchange.first_byte_s)


def note_answer(exchange: Exchange, backend: Backend | None, relay: Relay, status: int) -> None:
    """Tell of an answer that is whole, well or a refusal, while others go on."""
    if backend is None or (status >= 500 and status != 501):
        return
    ok = status < 400
    backend.answered(exchange.model, ok=ok)
    limit = backend.limit
    if not ok or limit is None:
        return
    started_s, begun_s = exchange.started_s, exchange.first_byte_s
    ended_s = exchange.heard_s or begun_s  # an answer that comes whole ends where it begins
    if limit.watches:
        _note_streams(backend, relay, exchange, exchange.id)
    if limit.listens and exchange.call.arrival.stream:
        silent = relay.first_bytes.members() if backend.is_full() else []
        here = [one for one in silent if one.node == backend.name]
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


def _note_streams(backend: Backend, relay: Relay, told: Exchange, ended: str = "") -> None:
    """Tell how far all streams of a node have come: one begins, or has `ended`, just now."""
    here: list[Exchange] = []
    if backend.is_full():
        here = [one for one in relay.gaps.members() if one.node == backend.name and one is not told]
        if told.heard_s:
            here.append(told)
    streams: list[Stream] = [
        (one.model, one.id, one.answer_bytes, one.heard_s) for one in here if not one.is_held_back()
    ]
    backend.streams(streams, told.heard_s or told.first_byte_s, ended)
