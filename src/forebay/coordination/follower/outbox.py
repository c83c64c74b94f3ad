"""What a replica has to say to its leader: in order, and numbered when it leaves this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import Batch, Left, in_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.protocol.messages import Up


class Outbox:
    """Items that wait to be sent."""

    def __init__(self) -> None:
        self.generation = 0
        """Which announcement they follow."""
        self.items: list[Up] = []
        self._number = 0  # of the next batch

    def begin(self, announcement: Iterable[Up]) -> None:
        """Announce everything anew: whatever was to be said before is void."""
        self.generation += 1
        self._number = 0
        self.items = [*announcement]

    def take(self) -> list[Up]:
        """Return all there is, and forget it."""
        items, self.items = self.items, []
        return items

    def batches(self, member: str) -> list[Batch]:
        """Return the same as messages."""
        batches = in_batches(member, self.generation, self._number, self.take())
        self._number += len(batches)
        return batches

    def last(self, member: str) -> Batch:
        """Return the message that this replica is gone; it is outside the count."""
        return Batch(member, self.generation, -1, (Left(member),))
