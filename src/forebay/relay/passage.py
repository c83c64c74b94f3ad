"""What is known of a request on its way: for headers, metrics, logs and whoever asks."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core import Describe, Route, Wait
    from forebay.relay.call import Call


class Passage:
    """The numbers of one request; `Exchange` is what moves it along."""

    __slots__ = (
        "arrived_s", "attempt", "call", "estimate_s", "first_byte_s", "last_node", "model",
        "node", "output_tokens", "position", "predicted_s", "prompt_tokens", "queued",
        "stands_since_s", "started_s", "status", "timeline", "waited_s",
    )  # fmt: skip

    def __init__(self, call: Call, now_s: float) -> None:
        self.call = call
        self.model = call.model
        self.node = ""  # while it runs, and where it was answered
        self.last_node = ""  # where it ran before it came back to the line
        self.attempt = 0
        self.queued = False
        self.position: int | None = None
        self.estimate_s: float | None = None
        self.predicted_s: float | None = None
        self.arrived_s = now_s
        self.waited_s = self.started_s = self.first_byte_s = 0.0
        self.stands_since_s = 0.0  # in line, while it does
        self.status = 0  # of the answer that reached the sink
        self.prompt_tokens = self.output_tokens = -1
        self.timeline: list[tuple[float, str]] | None = None

    def stand(self, action: Wait, now_s: float) -> None:
        """Take note of its place in line."""
        self.queued = True
        self.position = action.position
        self.estimate_s = action.estimate_s
        self.stands_since_s = now_s
        self.note("queued", now_s)

    def start(self, action: Route) -> None:
        """Take note of where it runs."""
        self.node = action.node
        self.attempt = action.attempt
        self.waited_s = action.waited_s
        self.queued = self.queued or self.waited_s > 0.0  # it may have had to return
        self.predicted_s = action.predicted_s
        if action.model:
            self.model = action.model
        self.started_s = self.arrived_s

    def note(self, what: str, now_s: float) -> None:
        """Remember when something happened, for whoever asks what became of this request."""
        if self.timeline is None:
            self.timeline = [(self.arrived_s, "arrived")]
        self.timeline.append((now_s, what))


def place_of(action: Describe) -> str:
    """Return what a stream is told of its place in line, and when its turn will come from now."""
    eta = "" if action.p50_s is None else f" eta={ceil(action.p50_s)}"
    return f": queued position={action.position}{eta}"
