"""What is known of a request when it has ended: who asked for what, and what became of it.

Plain classes, because they are compiled: of a `Struct` each attribute is looked up by its name,
and every reader asks for ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from forebay.core import Arrived


class EndedRequest:
    """One ended request. Times are those of the gateway's own clock; 0 where it never came so far.

    Readers in several threads share it: nobody changes one.
    """

    __slots__ = (
        "answer_bytes", "arrival", "arrived_s", "attempt", "ended_s", "first_byte_s", "model",
        "node", "outcome", "output_tokens", "prompt_tokens", "queued", "route", "started_s",
        "status", "waited_s",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - it is a record
        self,
        route: str,
        outcome: str,
        arrival: Arrived | None,
        ended_s: float,
        arrived_s: float = -1.0,
        model: str = "",
        node: str = "",
        status: int = 0,
        queued: bool = False,
        attempt: int = 0,
        waited_s: float = 0.0,
        started_s: float = 0.0,
        first_byte_s: float = 0.0,
        prompt_tokens: int = -1,
        output_tokens: int = -1,
        answer_bytes: int = 0,
    ) -> None:
        self.route = route
        self.outcome = outcome
        """`served`, `passed_through`, `cancelled` or an error code."""
        self.arrival = arrival
        """None where nothing could be read of it, or it is not relayed through the queue."""
        self.ended_s = ended_s
        self.arrived_s = arrived_s
        """-1 where it never reached the queue: its arrival then says little more than who asked."""
        self.model = model
        """The one that ran, where any did."""
        self.node = node
        self.status = status
        """Of the answer that reached the client; 0 where the gateway refused."""
        self.queued = queued
        self.attempt = attempt
        self.waited_s = waited_s
        self.started_s = started_s
        self.first_byte_s = first_byte_s
        self.prompt_tokens = prompt_tokens
        """As the node says; -1 where it does not."""
        self.output_tokens = output_tokens
        self.answer_bytes = answer_bytes


class EndedBatch:
    """Those that ended within a tick, in the order in which they did."""

    __slots__ = ("clock_offset_s", "requests", "time")

    def __init__(self, requests: list[EndedRequest], time: datetime, clock_offset_s: float) -> None:
        self.requests = requests
        self.time = time
        """When it was handed over."""
        self.clock_offset_s = clock_offset_s
        """From the gateway's own clock to Unix time."""
