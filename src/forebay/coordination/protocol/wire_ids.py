"""Ids of tickets between replicas, which are never reused.

Callers choose the ids of requests (`X-Request-Id`). They may use one again as soon as its request
has ended, and on another replica at the same time. What the leader says of the first may still be
on its way then, and would be taken for an answer to the second: an old grant for a new request. So
a replica gives every arrival an id of its own, made of its member id, which no other run of any
replica has, and a count. The caller's id travels beside it (`Arrived.request_id`), for those who
ask by it.

The two methods are all there is between the gateway, which knows callers' ids, and everything else
in this package, which does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core import (
    Arrived,
    Audit,
    Cancelled,
    Expire,
    Finished,
    Lease,
    Reject,
    SlotsChanged,
    Snapshot,
)

if TYPE_CHECKING:
    from forebay.core import Action, Event


class WireIds:
    """The ids of one replica's unfinished tickets."""

    def __init__(self, member: str) -> None:
        self.member = member
        self._arrivals = 0
        self._wire: dict[str, str] = {}  # by the caller's id
        self._own: dict[str, str] = {}  # the caller's, by the one on the wire

    def __len__(self) -> int:
        return len(self._own)

    def to_wire(self, event: Event) -> Event | None:
        """Return an event under the id that travels; None when it is about what has ended."""
        if type(event) is Arrived:
            return self._open(event)
        own_id: str | None = getattr(event, "id", None)
        if own_id is None:
            return event
        wire_id = self._wire.get(own_id)
        if wire_id is None:
            return None
        if isinstance(event, Finished | Cancelled):
            self._close(wire_id)
        return replace(event, id=wire_id)

    def from_wire(self, action: Action) -> Action | None:
        """Return an action under the id that the caller gave; None when it is too late for it."""
        if isinstance(action, Snapshot | SlotsChanged):
            return action
        if isinstance(action, Audit):
            leases = (Lease(self._own.get(one.id, one.id), one.node) for one in action.leases)
            return replace(action, leases=tuple(leases))
        own_id = self._own.get(action.id)
        if own_id is None:
            return None
        if isinstance(action, Reject | Expire):
            self._close(action.id)
        return replace(action, id=own_id)

    def open(self, arrival: Arrived) -> Arrived:
        """Return an arrival under the id that travels."""
        return self._open(arrival)

    def _open(self, arrival: Arrived) -> Arrived:
        self._arrivals += 1
        own_id, wire_id = arrival.id, f"{self.member}.{self._arrivals:x}"
        self._wire[own_id], self._own[wire_id] = wire_id, own_id
        return replace(arrival, id=wire_id, request_id=own_id)

    def _close(self, wire_id: str) -> None:
        del self._wire[self._own.pop(wire_id)]
