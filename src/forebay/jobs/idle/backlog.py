"""What the runner of idle slots knows of one model's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.clock import TimerHandle
    from forebay.relay.reservation import Reservation


class ModelBacklog:
    """One model's jobs, or a key's: how many are queued, and what is under way.

    The counts are hints: the store decides, and a wrong one costs a claim that finds nothing.
    """

    def __init__(self, queue: str, model: str, owner: str) -> None:
        self.queue = queue
        self.model = model
        self.owner = owner
        """The key with limits or a cap whose jobs these are; empty: of all that have none."""
        self.running_max = 0
        """The cap of that key, as the last ticket named it."""
        self.prompt_tokens = 0
        """Of the next job, for what its owner is charged when it starts."""
        self.measured = False
        """Whether that was asked of the store since the last grant."""
        self.measuring = False
        self.queued = 0
        """Jobs that are queued in the store, as far as we know."""
        self.heard = 0
        """Jobs that were ever said to be queued."""
        self.claiming = 0
        """Slots granted whose job is being claimed."""
        self.waiting = False
        """Whether a ticket is in the queue."""
        self.reservation: Reservation | None = None
        """That ticket."""
        self.reserving = False
        """Whether `reserve` is under way: a grant may come inside it."""
        self.parked: TimerHandle | None = None
        """Set while no slot is asked for; it ends by itself."""
        self.unknown_since_s: float | None = None
        """Since when no node has known the model, or one of its fallbacks."""

    def wants_slot(self) -> bool:
        """Say whether one more ticket should wait."""
        if self.owner and (self.claiming or self.measuring):
            return False
        return not self.waiting and self.parked is None and self.queued > self.claiming

    def is_idle(self) -> bool:
        """Say whether nothing is known or under way, so that it may be forgotten."""
        under_way = self.queued or self.claiming or self.waiting or self.measuring
        return not under_way and self.parked is None
