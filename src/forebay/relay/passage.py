"""What is known of a request on its way: for headers, metrics, logs and whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.relay.call import Call


class Passage:
    """The numbers of one request; `Exchange` is what moves it along."""

    __slots__ = (
        "arrived_s", "attempt", "call", "estimate_s", "first_byte_s", "model", "node",
        "output_tokens", "position", "predicted_s", "prompt_tokens", "queued", "started_s",
        "status", "timeline", "waited_s",
    )  # fmt: skip

    def __init__(self, call: Call, now_s: float) -> None:
        self.call = call
        self.model = call.model
        self.node = ""
        self.attempt = 0
        self.queued = False
        self.position: int | None = None
        self.estimate_s: float | None = None
        self.predicted_s: float | None = None
        self.arrived_s = now_s
        self.waited_s = self.started_s = self.first_byte_s = 0.0
        self.status = 0  # of the answer that reached the sink
        self.prompt_tokens = self.output_tokens = -1
        self.timeline: list[tuple[float, str]] | None = None

    def note(self, what: str, now_s: float) -> None:
        """Remember when something happened, for whoever asks what became of this request."""
        if self.timeline is None:
            self.timeline = [(self.arrived_s, "arrived")]
        self.timeline.append((now_s, what))
