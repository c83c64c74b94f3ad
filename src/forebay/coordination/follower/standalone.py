"""A replica without its fleet: its own share of the slots, and no queue for newcomers.

What runs goes on. What waited already keeps its place and may start on the share as it comes free;
newcomers start at once or are refused (503): nobody knows how long the whole queue is, so no wait
is promised. Cut off (the others still have a leader), the share is nothing: the slots are theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from msgspec.structs import replace

from forebay.coordination.leader.takeover import WITHHELD
from forebay.coordination.leader.totals import observed
from forebay.core import (
    KeyLimits,
    KeysUsed,
    Lent,
    NodeChanged,
    NodeRemoved,
    Options,
    OptionsChanged,
    Reject,
    Resumed,
    Scheduler,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forebay.coordination.follower.local_ticket import LocalTicket
    from forebay.coordination.protocol.fleet import Mode
    from forebay.core import Action, Event

NO_SHARE = "the gateways cannot coordinate, and this gateway's share of the slots is in use"
CUT_OFF = (
    "this gateway cannot reach the shared store, but others may: it starts nothing new until it can"
)


class Standalone:
    """The core of one replica while it is standalone."""

    def __init__(self, me: str, members: Iterable[str], options: Options) -> None:
        self._me = me
        self._members = tuple(members)
        self._scheduler = Scheduler(self._own(options))
        self._views: dict[str, NodeChanged] = {}
        self._shares: dict[str, int] = {}
        self.cut_off = False

    @property
    def mode(self) -> Mode:
        """`alone`, or `cut_off` also where its share of every node is nothing."""
        without = bool(self._shares) and not any(self._shares.values())
        return "cut_off" if self.cut_off or without else "alone"

    def begin(
        self, views: Mapping[str, NodeChanged], tickets: Iterable[LocalTicket], now_s: float
    ) -> list[Action]:
        """Take over everything this replica has; return the actions that follow."""
        actions = self.handle(KeysUsed(minute_is_used=True), now_s)
        for view in views.values():  # nothing starts before all that wait are known
            actions += self.handle(view, now_s)
            actions += self.handle(Lent(view.name, WITHHELD), now_s)
        decided = sorted(
            (ticket for ticket in tickets if ticket.stage != "asked"),
            key=lambda ticket: (ticket.stage != "running", ticket.seq, ticket.arrived_s),
        )
        events: list[Event] = [ticket.announcement(now_s) for ticket in decided]
        events += [Lent(name, -WITHHELD) for name in views]
        events += [ticket.announcement(now_s) for ticket in tickets if ticket.stage == "asked"]
        for event in events:
            actions += self.handle(event, now_s)
        return actions

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Decide about an event by this replica's share of the slots."""
        if isinstance(event, NodeChanged):
            self._views[event.name] = event
            self._shares[event.name] = share = self._share(event)
            event = replace(event, slots=share, slots_kind="lent")
        elif isinstance(event, NodeRemoved):
            self._views.pop(event.name, None)
            self._shares.pop(event.name, None)
        elif isinstance(event, OptionsChanged):
            event = OptionsChanged(self._own(event.options))
        return [self._explained(action) for action in self._scheduler.handle(event, now_s)]

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()

    def set_cut_off(self, *, off: bool, now_s: float) -> list[Action]:
        """Note whether the other replicas still have a leader: then the share is nothing."""
        if off == self.cut_off:
            return []
        self.cut_off = off
        actions: list[Action] = []
        for view in list(self._views.values()):
            actions += self.handle(view, now_s)
        return actions

    def _own(self, options: Options) -> Options:
        """Return the options of one that may not queue, and has a part of each key's rate."""
        others = len({self._me, *self._members})
        limits = {key: _part(whole, others) for key, whole in options.key_limits.items()}
        return replace(options, enabled=False, key_limits=limits)

    def _share(self, view: NodeChanged) -> int:
        return 0 if self.cut_off else share_of(self._me, self._members, view.name, view.slots)

    def _explained(self, action: Action) -> Action:
        if isinstance(action, Reject) and action.code in ("queue_disabled", "stream_not_queued"):
            why = CUT_OFF if self.cut_off else NO_SHARE
            return replace(action, code="coordination_lost", reasons=(why,))
        return action


def _part(limits: KeyLimits, of: int) -> KeyLimits:
    """Divide limits among so many replicas; each has at least 1."""
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return KeyLimits(-(-requests // of), -(-tokens // of), -(-limits.tokens_per_day // of))


def own_picture(
    options: Options, views: Mapping[str, NodeChanged], tickets: Iterable[LocalTicket], now_s: float
) -> Snapshot:
    """Return a snapshot of this replica's own tickets, for while there is no leader."""
    scheduler = Scheduler(options)
    for view in views.values():
        scheduler.handle(view, now_s)
    for ticket in sorted(tickets, key=lambda ticket: ticket.stage != "running"):
        told = ticket.announcement(now_s)
        scheduler.handle(told if isinstance(told, Resumed) else Resumed(told), now_s)
    return observed(scheduler, now_s)


def share_of(me: str, members: Iterable[str], node: str, slots: int) -> int:
    """Return how many of a node's slots are mine: a partition that all replicas work out alike.

    A node's slots are dealt out one by one over the replicas that were last known, in an order of
    its own for each node (rendezvous hashing, Thaler and Ravishankar 1998), so that the odd slots
    of many nodes spread over all. The shares of one node add up to its slots, whoever reckons, as
    long as all know the same replicas. A node with one slot belongs to one replica.

    >>> [share_of(name, ("a", "b", "c"), "gpu1", 4) for name in ("a", "b", "c")]
    [2, 1, 1]
    """
    everyone = sorted({me, *members}, key=lambda name: (crc32(f"{node}/{name}".encode()), name))
    whole, odd = divmod(max(0, slots), len(everyone))
    return whole + (everyone.index(me) < odd)
