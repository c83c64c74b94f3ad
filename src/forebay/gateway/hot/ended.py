"""What is known of a request when it has ended: who asked for what, and what became of it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from forebay.core import Arrived


class EndedRequest(msgspec.Struct, gc=False):
    """One ended request. Times are those of the gateway's own clock; 0 where it never came so far.

    Readers in several threads share it: nobody changes one.
    """

    route: str
    outcome: str
    """`served`, `passed_through`, `cancelled` or an error code."""
    arrival: Arrived | None
    """None where nothing could be read of it, or it is not relayed through the queue."""
    ended_s: float
    arrived_s: float = -1.0
    """-1 where it never reached the queue: its arrival then says little more than who asked."""
    model: str = ""
    """The one that ran, where any did."""
    node: str = ""
    status: int = 0
    """Of the answer that reached the client; 0 where the gateway refused."""
    queued: bool = False
    attempt: int = 0
    waited_s: float = 0.0
    started_s: float = 0.0
    first_byte_s: float = 0.0
    prompt_tokens: int = -1
    """As the node says; -1 where it does not."""
    output_tokens: int = -1
    answer_bytes: int = 0


class EndedBatch(msgspec.Struct, gc=False):
    """Those that ended within a tick, in the order in which they did."""

    requests: list[EndedRequest]
    time: datetime
    """When it was handed over."""
    clock_offset_s: float
    """From the gateway's own clock to Unix time."""
