"""Who is next inside one class and lane: start-time fair queueing between users.

**Theory.** Each user has a counter: the service received so far, divided by the user's weight, in
the virtual time of this queue. The user with the lowest counter is next; ties go to the oldest
entry. The counter is charged when the entry is dispatched (charging at the end would let one user
fill every slot) and corrected when the real cost is known. The queue's clock V is the counter of
the last dispatched user *before* its charge; a user who becomes backlogged is lifted to V minus
the burst, so that idling banks no credit, and never above it, so that newcomers are not punished.
(Goyal et al., "Start-time Fair Queueing", 1996; Sheng et al., "Fairness in Serving LLMs", 2024.)

One rule serves the three modes, by what a dispatch costs: `round_robin` 1, `tokens` the estimated
tokens, `fifo` 0 (all counters stay equal, so the oldest entry wins).

**Bound.** Two users backlogged in the queue: their service over weight differs by at most
2 x the largest charge, plus slots x the error of the cost estimate. Each operation is O(log n).

**Why a clock per queue and not one per class.** With one clock, a busy lane winds it up while the
users of a slow lane stand still; lifting those at the pick makes all of them equal, and the slow
lane decays to FIFO. Lines on the same node are compared by `forebay.core.shares`, and a dispatch
is charged in every queue whose capacity it used (`charge_elsewhere`), so spreading over models or
families buys nobody a second share. Debts made elsewhere are bounded: who joins stands at most
one largest charge behind the clock: decision 2.

**Laziness.** Heap items are checked when they surface: counters and heads only move up between
pushes (one that moves down is pushed afresh), so a stale item is met early and pushed again.
Dead entries are dropped when met, and swept when they are more than half.

**Retries** go before everything else in their class and lane, oldest first: each of them was the
best entry once, so that is its old place. They are not charged again, and being served out of
turn they do not move the clock. So does who was the best entry for a node that it may not use.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from forebay.core.backlogs import Backlogs
from forebay.core.pace import Pace
from forebay.core.promises import Promises
from forebay.core.retries import Retries

if TYPE_CHECKING:
    from forebay.core.backlogs import Cell
    from forebay.core.entries import Entry, User
    from forebay.core.lanes import Lane
    from forebay.core.nodes import Node

ORDER_MIN: Final = 64
"""Shorter backlogs are sorted again each time."""
SWEEP_SLACK: Final = 64
"""Dead items always tolerated, so that small heaps are never swept."""


class Account:
    """One user's standing in one queue."""

    __slots__ = (
        "came", "cell", "counter", "entries", "live", "order", "origin_s", "owed", "push", "user",
        "weight",
    )  # fmt: skip

    def __init__(self, user: User, counter: float, weight: float) -> None:
        self.user = user
        self.counter = counter  # service over weight, in the queue's virtual time
        self.weight = weight
        self.entries: list[tuple[int, Entry]] = []  # heap by seq; may hold dead ones
        self.live = 0  # entries of this heap that still wait
        self.owed = 0.0  # the cost of these, before weights
        self.cell: Cell | None = None  # where that is counted; None while it is 0
        self.came = 0.0  # the cost of what came lately, weighed by time since `origin_s`
        self.origin_s = 0.0
        self.push = 0  # the number of its current item in the queue's heap; older ones are stale
        self.order: Order | None = None  # of a long backlog, as it was when last asked for

    def before(self, seq: int) -> tuple[int, float]:
        """Return how many live entries are older, and what these cost.

        Who asks about one entry is likely to ask about others, as a list of requests does: of a
        long backlog the order is kept until it changes.
        """
        order = self.order
        key = (self.live, len(self.entries), self.owed, self.counter)
        if order is None or order.key != key:
            order = Order(key, self)
            if self.live >= ORDER_MIN:
                self.order = order
        place = bisect_left(order.seqs, seq)
        return place, order.costs[place]

    def head(self) -> Entry:
        """Return the oldest live entry; there must be one."""
        entries = self.entries
        while True:
            entry = entries[0][1]
            if entry.state == "waiting" and entry.account is self:
                return entry
            heappop(entries)

    def sweep(self) -> None:
        """Drop the dead when they are more than half."""
        if len(self.entries) > 2 * self.live + SWEEP_SLACK:
            self.entries = [item for item in self.entries if lives_in(item[1], self)]
            heapify(self.entries)


class Order:
    """The live entries of an account, the oldest first."""

    __slots__ = ("costs", "key", "seqs")

    def __init__(self, key: tuple[int, int, float, float], account: Account) -> None:
        self.key = key  # what differs once it is out of date
        live = sorted(
            (seq, entry.price)
            for seq, entry in account.entries
            if entry.state == "waiting" and entry.account is account
        )
        self.seqs = [seq for seq, _ in live]
        self.costs = [0.0, *accumulate(price for _, price in live)]  # of all before each


def lives_in(entry: Entry, account: Account) -> bool:
    """Say whether an entry of an account's heap still waits there."""
    return entry.state == "waiting" and entry.account is account


class WaitQueue:
    """What waits in one class and lane: one heap of users by counter, each with its entries."""

    __slots__ = (
        "_pushes", "backlogged", "backlogs", "burst", "charge_max", "clock", "ended", "heap",
        "lane", "pace", "promises", "rank", "returned", "running", "unserved_since_s", "waiting",
    )  # fmt: skip

    def __init__(self, lane: Lane, rank: int, burst: float) -> None:
        self.lane = lane
        self.rank = rank
        self.burst = burst
        self.clock = 0.0  # V; never runs backwards
        self.heap: list[tuple[float, int, int, Account]] = []  # counter, head seq, push, account
        self.backlogged = 0  # accounts with something live
        self.waiting = 0  # live entries, returned ones included
        self.returned = Retries()
        self.running = 0
        self.ended = 0  # runs, however they ended
        self.charge_max = 0.0  # the largest charge made here
        self.unserved_since_s = 0.0  # when it became non-empty, or was last served
        self.pace = Pace()
        self.backlogs = Backlogs()
        self.promises = Promises()
        self._pushes = 0

    def account_of(self, user: User, weight: float) -> Account:
        """Return the user's standing here, new if there is none."""
        account = user.accounts.get(self)
        if account is None:
            account = user.accounts[self] = Account(user, self.clock - self.burst, weight)
            self.backlogs.recall(user.name, account)
        elif account.weight != weight:
            self.change_weight(account, weight)
        return account

    def change_weight(self, account: Account, weight: float) -> None:
        owed = account.owed
        self.backlogs.change(account, 0.0)
        account.weight = weight
        self.backlogs.change(account, owed)

    def join(self, entry: Entry) -> None:
        """Add an entry, behind its user's older ones."""
        entry.goes_first = False
        account = entry.account
        heappush(account.entries, (entry.seq, entry))
        if entry.price:
            self.backlogs.join(account, entry.price, self.pace.busy_s)
        self.waiting += 1
        self._count_size(entry)
        if account.live == 0:
            self.backlogged += 1
            account.counter = self.standing(account)
            account.live = 1
            self._push(account, entry.seq)
            return
        account.live += 1
        if account.head() is entry:  # older than the rest: it came from a lower class
            self._push(account, entry.seq)

    def rejoin(self, entry: Entry) -> None:
        """Put an entry that was the best once back into its place, before all that never were."""
        entry.goes_first = True
        self.returned.add(entry)
        self.waiting += 1
        self._count_size(entry)

    def drop(self, entry: Entry) -> bool:
        """Let an entry go, to its end or to another queue; return whether it is a retry."""
        self.waiting -= 1
        if entry.size is not None:
            self.lane.times.by_size.leave(entry.size, self.rank)
            entry.size = None
        if entry.goes_first:
            self.returned.remove(entry)
            return True
        account = entry.account
        account.live -= 1
        if account.live == 0:
            self.backlogged -= 1
            account.entries.clear()
        else:
            account.sweep()
        if entry.price:
            self.backlogs.leave(account, entry.price)
        return False

    def _count_size(self, entry: Entry) -> None:
        """Count what a new entry will take; one that came before any measurement has no size."""
        sizes = self.lane.times.sizes()
        size = entry.size = sizes.of(entry.arrival.prompt_tokens) if sizes.usual_s > 0.0 else None
        if size is not None:
            sizes.join(size, self.rank)

    def best(self) -> Entry | None:
        """Return the entry that is next, retries aside, or None when none waits."""
        heap = self.heap
        while heap:
            counter, seq, push, account = heap[0]
            if push != account.push or account.live == 0:
                heappop(heap)
                continue
            head = account.head()
            if account.counter == counter and head.seq == seq:
                return head
            self._pushes += 1
            account.push = self._pushes
            heapreplace(heap, (account.counter, head.seq, self._pushes, account))
        return None

    def best_of_others(self, users: frozenset[str]) -> Entry | None:
        """Return the entry that is next of other users than these, retries aside."""
        passed_over = []
        while (entry := self.best()) is not None and entry.user.name in users:
            passed_over.append(heappop(self.heap))
        for item in passed_over:
            heappush(self.heap, item)
        return entry

    def first_returned(self, node: Node) -> Entry | None:
        return self.returned.first_for(node.name)

    def next_for(self, node: Node, but: frozenset[str]) -> Entry | None:
        """Return the entry of others than some users that is next on a node, or None."""
        first = self.returned.first_for(node.name, but) if self.returned.count else None
        return first or (self.best_of_others(but) if but else self.best())

    def take(self, entry: Entry) -> None:
        """Take an entry out: the head of the best account, or a retry."""
        self.waiting -= 1
        if entry.size is not None:
            self.lane.times.by_size.leave(entry.size, self.rank)
        if entry.goes_first:
            self.returned.remove(entry)
            return
        account = entry.account
        heappop(account.entries)
        account.live -= 1
        if account.live == 0:
            self.backlogged -= 1
            account.entries.clear()
        if entry.price:
            self.backlogs.leave(account, entry.price)

    def charge(self, account: Account, amount: float) -> float:
        """Charge a dispatch; return the counter before it, which is where the clock now is."""
        start = account.counter
        floor = self.clock - self.burst
        if start < floor:
            start = floor
        if start > self.clock:
            self.clock = start
        if amount > self.charge_max:
            self.charge_max = amount
        account.counter = start + amount
        return start

    def note_charge(self, amount: float) -> None:
        """Remember a charge that turned out larger than it was made."""
        if amount > self.charge_max:
            self.charge_max = amount

    def standing(self, account: Account | None) -> float:
        """Return the counter with which a user waits here, or would if it joined now.

        Who joins has banked no credit, and at most one largest charge of debt.
        """
        if account is None:
            return self.clock - self.burst
        if account.live:
            return account.counter
        ceiling = self.clock + self.charge_max
        counter = account.counter if account.counter < ceiling else ceiling
        floor = self.clock - self.burst
        return counter if counter > floor else floor

    def correct(self, account: Account, amount: float) -> None:
        """Add to an account, or give back (never below the clock less the burst)."""
        counter = account.counter + amount
        floor = self.clock - self.burst
        account.counter = counter if counter > floor else floor
        if amount < 0 and account.live:
            self._push(account, account.head().seq)

    def _push(self, account: Account, seq: int) -> None:
        heap = self.heap
        if len(heap) > 2 * self.backlogged + SWEEP_SLACK:
            self.heap = heap = [i for i in heap if i[2] == i[3].push and i[3].live]
            heapify(heap)
        self._pushes += 1
        account.push = self._pushes
        heappush(heap, (account.counter, seq, self._pushes, account))


def charge_elsewhere(user: User, queue: WaitQueue, node: Node, amount: float) -> None:
    """Charge the user in the other queues of the class that this node's capacity also serves."""
    gone = []
    for other, account in user.accounts.items():
        if other is not queue and other.rank == queue.rank and node.name in other.lane.nodes:
            other.correct(account, amount)
        elif not other.lane.is_known() and not other.lane.unfinished:
            gone.append(other)
    for other in gone:  # its lane is no more
        del user.accounts[other]
