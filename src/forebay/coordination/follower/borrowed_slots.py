"""The slots that are lent to a replica, which it may fill without asking the leader.

Inside is a core like the leader's, with only these slots and no queue: what finds no free slot at
once is refused here, and the caller asks the leader instead. So the choice of a node follows the
same rules wherever it is made.

A loan is used only for what needs no knowledge of other replicas: no job (they take what all leave
over), no cap or rate per key, no session and no prompt that one of several nodes may have, and on a
node that swaps models only for those in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.tickets import goes_by_node
from forebay.core import (
    Arrived,
    Finished,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Options,
    Route,
    Scheduler,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class BorrowedNode:
    """Slots of one node that are lent to this replica."""

    __slots__ = ("busy", "owed", "slots")

    def __init__(self) -> None:
        self.slots = 0  # lent to us, used or not
        self.busy = 0  # of those, in use
        self.owed = 0  # of those in use, to be given back when they come free


class BorrowedSlots:
    """All that is lent to this replica."""

    def __init__(self, options: Options) -> None:
        self._scheduler = Scheduler(replace(options, enabled=False, key_limits={}))
        self.paced = options.key_limits
        """Keys with a rate, which the leader alone counts."""
        self._views: dict[str, NodeChanged] = {}
        self._loans: dict[str, BorrowedNode] = {}
        self.idle = 0  # slots free to use, to know at once when there are none

    @property
    def nodes(self) -> list[str]:
        return list(self._loans)

    @property
    def slots(self) -> int:
        """How many slots are lent to this replica, used or not."""
        return sum(loan.slots for loan in self._loans.values())

    def lend(self, node: str, slots: int, now_s: float) -> None:
        loan = self._loans.setdefault(node, BorrowedNode())
        loan.slots += slots
        self.idle += slots
        self._tell(node, now_s)

    def recall(self, node: str, keep: int, now_s: float) -> int:
        """Give up slots until `keep` are left; return how many are free to go now."""
        loan = self._loans.get(node)
        if loan is None:
            return 0
        excess = max(0, loan.slots - keep)
        freed = min(excess, loan.slots - loan.busy)
        loan.owed = excess - freed
        self._drop(node, loan, freed, now_s)
        return freed

    def start(self, arrival: Arrived, now_s: float) -> Route | None:
        """Start an arrival on a borrowed slot, if one is free for it."""
        if not self.idle or not _is_plain(arrival) or arrival.key in self.paced:
            return None
        if arrival.affinity and goes_by_node(arrival, self._views.values()):
            return None
        if arrival.fallbacks:
            arrival = replace(arrival, fallbacks=())
        (decision, *_) = self._scheduler.handle(arrival, now_s)
        if not isinstance(decision, Route):
            return None
        self._loans[decision.node].busy += 1
        self.idle -= 1
        return decision

    def end(self, ticket_id: str, node: str, now_s: float) -> int:
        """End a ticket's use of a slot; return how many of that node are now free to give back."""
        self._scheduler.handle(Finished(ticket_id), now_s)
        loan = self._loans[node]
        loan.busy -= 1
        self.idle += 1
        if not loan.owed:
            return 0
        loan.owed -= 1
        self._drop(node, loan, 1, now_s)
        return 1

    def change(self, view: NodeChanged, now_s: float) -> None:
        self._views[view.name] = view
        self._tell(view.name, now_s)

    def rest(self, event: NodeRested, now_s: float) -> None:
        self._scheduler.handle(event, now_s)

    def remove(self, node: str, now_s: float) -> None:
        """Forget a node; its slots are of no use any more, but still lent."""
        self._views.pop(node, None)
        self._scheduler.handle(NodeRemoved(node), now_s)

    def _drop(self, node: str, loan: BorrowedNode, slots: int, now_s: float) -> None:
        loan.slots -= slots
        self.idle -= slots
        if not loan.slots:
            del self._loans[node]
        if slots:
            self._tell(node, now_s)

    def _tell(self, node: str, now_s: float) -> None:
        """Tell the core inside which slots and models of a node it may use."""
        view, loan = self._views.get(node), self._loans.get(node)
        if view is None or loan is None:
            self._scheduler.handle(NodeRemoved(node), now_s)
            return
        models: Iterable[str] = view.models
        if view.loaded is not None:
            models = (model for model in view.models if model in view.loaded)
        slots = loan.slots - loan.owed
        ours = replace(view, slots=slots, slots_kind="lent", models=tuple(models), loaded=None)
        self._scheduler.handle(ours, now_s)


def _is_plain(arrival: Arrived) -> bool:
    """Say whether an arrival needs no knowledge of other replicas."""
    return not (arrival.job or arrival.key_running_max or arrival.prefix)
