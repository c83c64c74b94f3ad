"""A place in line for work that is not chosen yet: how jobs take idle capacity.

A job's ticket stands below every class of live requests and costs nothing while it waits. Only
when a slot is free, and nothing live wants it, is the work chosen that fits it: the next job of
that model, claimed in the store at that moment. So nothing is claimed that cannot run at once, and
a gateway that stops gives nothing back that it never had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from forebay.core import Cancelled
from forebay.relay.exchange import Exchange

if TYPE_CHECKING:
    from forebay.core import Route, WaitReason
    from forebay.relay.call import InferenceCall, Sink
    from forebay.relay.problem import Problem
    from forebay.relay.relay import Relay


class Holder(Protocol):
    """Who wants the slot."""

    def granted(self, reservation: Reservation) -> None:
        """Take the slot: call `begin` soon, or `give_up`."""
        ...

    def refused(self, reservation: Reservation, problem: Problem) -> None: ...


class Reservation:
    """One ticket; ends with `begin`, with `give_up`, or refused. May be given up at any time."""

    __slots__ = ("_holder", "_relay", "_route", "id", "reason")

    def __init__(self, ticket_id: str, holder: Holder, relay: Relay) -> None:
        self.id = ticket_id
        self.reason: WaitReason | None = None
        """Why it had to wait when it was made; None where it did not."""
        self._holder = holder
        self._relay = relay
        self._route: Route | None = None

    @property
    def model(self) -> str:
        """Which model was granted, where there were fallbacks to choose from; else empty."""
        return self._route.model if self._route is not None else ""

    def begin(self, call: InferenceCall, sink: Sink) -> Exchange:
        """Use the slot for this call, whose id is the ticket's; the rest is as for any request."""
        route, relay = self._route, self._relay
        assert route is not None
        assert call.arrival.id == self.id
        del relay.reservations[self.id]
        exchange = Exchange(call, sink, relay, relay.now_s())
        relay.exchanges[self.id] = exchange
        exchange.run(route)
        return exchange

    def give_up(self) -> None:
        """Let it go, granted or not; may be called twice."""
        relay = self._relay
        if relay.reservations.pop(self.id, None) is not None:
            relay.post(Cancelled(self.id, unused=True))
            if relay.freed is not None:
                relay.freed("", "")

    # -- for the relay

    def route(self, action: Route) -> None:
        """Hand over the slot."""
        self._route = action
        self._holder.granted(self)

    def refuse(self, problem: Problem) -> None:
        """Say that there is none; the core has given up the ticket already."""
        if self._relay.reservations.pop(self.id, None) is not None:
            self._holder.refused(self, problem)
