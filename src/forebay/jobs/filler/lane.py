"""One model's jobs, as the filler sees them: how many are queued, and what is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.clock import TimerHandle
    from forebay.relay.reservation import Reservation


class Lane:
    """Counts are hints: the store decides, and a wrong guess costs one claim for nothing."""

    __slots__ = (
        "claiming", "heard", "model", "parked", "queue", "queued", "reservation", "reserving",
        "unknown_since_s", "waiting",
    )  # fmt: skip

    def __init__(self, queue: str, model: str) -> None:
        self.queue = queue
        self.model = model
        self.queued = 0
        """Jobs that are queued in the store, as far as we know."""
        self.heard = 0
        """Jobs that were ever said to be queued."""
        self.claiming = 0
        """Slots granted whose job is being claimed."""
        self.waiting = False
        """Whether a ticket stands in line."""
        self.reservation: Reservation | None = None
        """That ticket."""
        self.reserving = False
        """Whether `reserve` is under way: a grant may come inside it."""
        self.parked: TimerHandle | None = None
        """Set while there is no point in asking; it ends by itself."""
        self.unknown_since_s: float | None = None
        """Since when no node has known the model."""

    def wants_slot(self) -> bool:
        """Say whether one more ticket should stand in line."""
        return not self.waiting and self.parked is None and self.queued > self.claiming

    def is_idle(self) -> bool:
        """Say whether nothing is known or under way, so that it may be forgotten."""
        return not (self.queued or self.claiming or self.waiting or self.parked is not None)
