"""What the executor of idle slots knows of one model's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.jobs.builtin import model_of
from forebay.jobs.loop import Backlog

if TYPE_CHECKING:
    from forebay.clock import TimerHandle
    from forebay.relay.reservation import Reservation


class ModelBacklog(Backlog):
    """One model's jobs: those of a key with limits or a cap, or of all keys that have none."""

    def __init__(self, queue: str, owner: str) -> None:
        super().__init__(queue, owner)
        self.model = model_of(queue) or ""
        self.running_max = 0
        """The cap of the key, as the last ticket named it."""
        self.prompt_tokens = 0
        """Of the next job, for what its owner is charged when it starts."""
        self.measured = False
        """Whether that was asked of the store since the last grant."""
        self.measuring = False
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
