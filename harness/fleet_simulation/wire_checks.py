"""That no id is used twice between replicas, by what they send to whoever leads.

An id is spent when its replica has said that the ticket is over, or announces everything and leaves
it out; nobody may use it again, and no other replica at all. What is sent twice counts once. A
leader's own tickets are not seen here: they do not travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.protocol.messages import Announced, decode_batch
from forebay.core import Arrived, Cancelled, Finished, Resumed

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination.protocol.messages import Up


class WireChecker:
    """Reads what goes up."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        self._broken = broken
        self._last: dict[str, tuple[int, int]] = {}  # generation and number, by member
        self._live: dict[str, set[str]] = {}  # said since its last announcement began
        self._before: dict[str, set[str]] = {}  # and before it
        self._owners: dict[str, str] = {}
        self._spent: set[str] = set()

    def read(self, payload: bytes) -> None:
        batch = decode_batch(payload)
        place = (batch.generation, batch.number)
        if batch.number < 0 or place <= self._last.get(batch.member, (0, -1)):
            return
        self._last[batch.member] = place
        if batch.number == 0:
            self._before[batch.member] = self._live.pop(batch.member, set())
        for item in batch.items:
            self._take(batch.member, item)

    def _take(self, member: str, item: Up) -> None:
        live = self._live.setdefault(member, set())
        if isinstance(item, Arrived | Resumed):
            name = item.arrival.id if isinstance(item, Resumed) else item.id
            if name in self._spent or self._owners.setdefault(name, member) != member:
                self._broken(f"{member} uses the id {name} again")
            live.add(name)
        elif isinstance(item, Finished | Cancelled):
            live.discard(item.id)
            self._spent.add(item.id)
        elif isinstance(item, Announced):
            self._spent |= self._before.pop(member, set()) - live
