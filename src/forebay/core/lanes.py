"""Lanes: one model in one family, the nodes that serve it, and what is waiting for it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from forebay.core.estimates import RESIDUALS_MAX, ServiceTimes
from forebay.core.fairness import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.entries import Entry
    from forebay.core.nodes import Node

FAR_ROUNDS = 8
"""After so many rounds of the slots it no longer matters how long what runs now has run."""


class Lane:
    """Requests that the same set of nodes can serve."""

    __slots__ = (
        "family",
        "is_up",
        "lines",
        "model",
        "nodes",
        "resting",
        "running",
        "slots",
        "times",
        "unfinished",
    )

    def __init__(self, model: str, family: str, ranks: int, burst: float) -> None:
        self.model = model
        self.family = family
        self.nodes: dict[str, Node] = {}  # all that can serve the model when they are online
        self.resting: dict[str, Node] = {}  # that list it, but may not be sent anything just now
        self.lines = [Line(self, rank, burst) for rank in range(ranks)]
        self.running: dict[Entry, None] = {}
        self.unfinished = 0  # everything accepted for it and not ended
        self.slots = 0  # of nodes that are online, resting or not
        self.is_up = False  # whether any node is online, resting or not
        self.times = ServiceTimes()

    def count_slots(self) -> None:
        """Add up the slots that are online, after a node changed."""
        online = [node for node in self._listing() if node.state == "online"]
        self.slots = sum(node.slots for node in online)
        self.is_up = bool(online)

    def is_known(self) -> bool:
        """Say whether any node lists the model, whatever its state."""
        return bool(self.nodes or self.resting)

    def is_loading(self) -> bool:
        """Say whether every node says by itself that it is still loading or starting."""
        return self.is_known() and all(node.state == "loading" for node in self._listing())

    def _listing(self) -> Iterator[Node]:
        """Return the nodes that list the model; who rests for seconds is worth waiting for."""
        return chain(self.nodes.values(), self.resting.values())

    def waiting(self) -> int:
        """Return how many live requests wait here; the last line, of jobs, is left out."""
        return sum(line.waiting for line in self.lines[:-1])

    def wait_s(self, ahead: int, now_s: float) -> tuple[float, float, float] | None:
        """Return p50, p90 and the header's number for the wait behind `ahead` entries."""
        running = self.running
        if len(running) > RESIDUALS_MAX or ahead > FAR_ROUNDS * self.slots:
            elapsed_s: list[float] = []
        else:
            elapsed_s = [now_s - entry.since_s for entry in running]
        return self.times.wait_s(ahead, self.slots, elapsed_s)

    def newcomer_wait_s(self, now_s: float) -> float | None:
        """Return the median wait of one that came last: what `Retry-After` is made of."""
        estimate = self.wait_s(self.waiting(), now_s)
        return None if estimate is None else estimate[0]
