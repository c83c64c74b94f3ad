"""The limits on how long a node may take, and what is said when one of them is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.relay.exchange import Exchange


def first_byte_is_late(exchange: Exchange) -> None:
    """Give up on a stream that does not begin."""
    exchange.time_out("first_byte_timeout", "the node did not begin to answer in time")


def chunk_is_late(exchange: Exchange) -> None:
    """Give up on a stream that has gone silent, unless it is we who do not listen."""
    if not exchange.is_held_back():  # `resume` counts anew
        exchange.time_out("chunk_timeout", "the node went silent in the middle of its answer")


def end_is_late(exchange: Exchange) -> None:
    """Give up on an answer that does not end."""
    exchange.time_out("run_timeout", "the node did not finish its answer in time")
