"""A replica's own tickets: enough of each to announce it to the next leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from forebay.coordination.leader.totals import observed
from forebay.core import (
    Arrived,
    Audit,
    Expire,
    Lease,
    Reject,
    Resumed,
    Route,
    Scheduler,
    SlotsChanged,
    Snapshot,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forebay.core import Action, NodeChanged, Options

Stage: TypeAlias = Literal[
    "asked",  # the leader has not decided yet
    "waiting",
    "running",
]


class LocalTicket:
    """One ticket of this replica."""

    __slots__ = (
        "arrival", "arrived_s", "attempt", "excluded", "lent", "loan_id", "node", "seq", "since_s",
        "stage", "waited_s",
    )  # fmt: skip

    def __init__(self, arrival: Arrived, now_s: float) -> None:
        self.arrival = arrival
        self.stage: Stage = "asked"
        self.arrived_s = now_s
        self.since_s = now_s  # when the present stage began
        self.waited_s = 0.0  # waiting before the present stage
        self.seq = 0
        self.attempt = 0
        self.node = ""
        self.excluded: tuple[str, ...] = ()
        self.lent = False  # whether it runs on a slot of a loan
        self.loan_id = ""  # by which the loan knows it, where that is another id

    def wait(self, action: Wait) -> None:
        self.stage, self.seq = "waiting", action.seq

    def run(self, action: Route, now_s: float) -> None:
        self.stage, self.since_s = "running", now_s
        self.node, self.attempt, self.waited_s = action.node, action.attempt, action.waited_s
        if action.seq:
            self.seq = action.seq
        if action.model and action.model != self.arrival.model:
            self.arrival = replace(self.arrival, model=action.model)

    def requeue(self, now_s: float, *, exclude: bool) -> None:
        """Note that it failed before its first byte and waits again."""
        if exclude and self.node not in self.excluded:
            self.excluded += (self.node,)
        self.stage, self.since_s, self.node, self.lent = "waiting", now_s, "", False

    def waited(self, now_s: float) -> float:
        """Return all the time it has spent waiting, up to now."""
        return self.waited_s if self.stage == "running" else self.waited_s + now_s - self.since_s

    def is_late(self, limit_s: float, now_s: float) -> bool:
        """Say whether it has waited as long as it may; jobs have no limit."""
        if self.stage == "running" or self.arrival.job:
            return False
        own_s = self.arrival.max_wait_s
        return self.waited(now_s) >= (limit_s if own_s is None else min(own_s, limit_s))

    def announcement(self, now_s: float) -> Arrived | Resumed:
        """Return what announces it to a leader; an undecided one arrives anew."""
        if self.stage == "asked":
            return self.arrival
        running = self.stage == "running"
        return Resumed(
            self.arrival,
            self.seq,
            self.waited(now_s),
            self.attempt,
            self.node,
            now_s - self.since_s if running else 0.0,
            self.excluded,
        )


def record(tickets: dict[str, LocalTicket], action: Action, now_s: float) -> bool:
    """Record a decision about a ticket; False when the ticket has ended, or runs already."""
    if type(action) is not Route and isinstance(action, Snapshot | Audit | SlotsChanged):
        return True
    ticket = tickets.get(action.id)
    if ticket is None:
        return False  # cancelled, and the leader was told
    if isinstance(action, Route):
        if ticket.stage == "running":
            return False  # never two leases at once
        ticket.run(action, now_s)
    elif isinstance(action, Wait):
        ticket.wait(action)
    elif isinstance(action, Reject | Expire):
        del tickets[action.id]
    return True


def announce_all(tickets: Iterable[LocalTicket], now_s: float) -> list[Arrived | Resumed]:
    """Return the announcement of all tickets: what runs first, for its slots are taken.

    Undecided ones come last: they get what the others leave.
    """
    in_order = sorted(
        tickets, key=lambda ticket: (ticket.stage != "running", ticket.stage == "asked")
    )
    return [ticket.announcement(now_s) for ticket in in_order]


def audit(tickets: dict[str, LocalTicket]) -> Audit:
    """Return the leases of this replica, whether or not there is a leader."""
    running = (ticket for ticket in tickets.values() if ticket.stage == "running")
    return Audit(tuple(Lease(ticket.arrival.id, ticket.node) for ticket in running), len(tickets))


def own_picture(
    options: Options, views: Mapping[str, NodeChanged], tickets: Iterable[LocalTicket], now_s: float
) -> Snapshot:
    """Return a snapshot of this replica's own tickets, for while there is no leader."""
    scheduler = Scheduler(options)
    for view in views.values():
        scheduler.handle(view, now_s)
    for ticket in sorted(tickets, key=lambda ticket: ticket.stage != "running"):
        event = ticket.announcement(now_s)
        scheduler.handle(event if isinstance(event, Resumed) else Resumed(event), now_s)
    return observed(scheduler, now_s)
