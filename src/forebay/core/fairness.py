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

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from forebay.core import retries
from forebay.core.records import Account, ParkedLine

if TYPE_CHECKING:
    from forebay.core.records import Entry, Node, User, WaitQueue

SWEEP_SLACK: Final = 64
"""Dead items always tolerated, so that small heaps are never swept."""


def lives_in(entry: Entry, account: Account) -> bool:
    """Say whether an entry of an account's heap still waits there."""
    return entry.state == "waiting" and entry.account is account


def head_of(account: Account) -> Entry:
    """Return the oldest live entry of an account; there must be one."""
    entries = account.entries
    while True:
        entry = entries[0][1]
        if entry.state == "waiting" and entry.account is account:
            return entry
        heappop(entries)


def sweep(account: Account) -> None:
    """Drop the dead of an account when they are more than half."""
    if len(account.entries) > 2 * account.live + SWEEP_SLACK:
        account.entries = [item for item in account.entries if lives_in(item[1], account)]
        heapify(account.entries)


def account_of(queue: WaitQueue, user: User, weight: float) -> Account:
    """Return the user's standing here, new if there is none."""
    account = user.accounts.get(queue)
    if account is None:
        account = user.accounts[queue] = Account(user, queue.clock - queue.burst, weight)
        queue.backlogs.recall(user.name, account)
    elif account.weight != weight:
        change_weight(queue, account, weight)
    return account


def change_weight(queue: WaitQueue, account: Account, weight: float) -> None:
    """Change a user's share against others."""
    owed = account.owed
    queue.backlogs.change(account, 0.0)
    account.weight = weight
    queue.backlogs.change(account, owed)


def join(queue: WaitQueue, entry: Entry) -> None:
    """Add an entry, behind its user's older ones."""
    entry.goes_first = False
    account = entry.account
    heappush(account.entries, (entry.seq, entry))
    if entry.price:
        queue.backlogs.join(account, entry.price, queue.pace.busy_s)
    queue.waiting += 1
    _count_size(queue, entry)
    if account.live == 0:
        queue.backlogged += 1
        account.counter = standing(queue, account)
        account.live = 1
        _push(queue, account, entry.seq)
        return
    account.live += 1
    if head_of(account) is entry:  # older than the rest: it came from a lower class
        _push(queue, account, entry.seq)


def rejoin(queue: WaitQueue, entry: Entry) -> None:
    """Put an entry that was the best once back into its place, before all that never were."""
    entry.goes_first = True
    retries.add(queue.returned, entry)
    queue.waiting += 1
    _count_size(queue, entry)


def drop(queue: WaitQueue, entry: Entry) -> bool:
    """Let an entry go, to its end or to another queue; return whether it is a retry."""
    queue.waiting -= 1
    if entry.size is not None:
        queue.lane.times.by_size.leave(entry.size, queue.rank)
        entry.size = None
    if entry.goes_first:
        retries.remove(queue.returned, entry)
        return True
    account = entry.account
    account.live -= 1
    if account.live == 0:
        queue.backlogged -= 1
        account.entries.clear()
    else:
        sweep(account)
    if entry.price:
        queue.backlogs.leave(account, entry.price)
    return False


def _count_size(queue: WaitQueue, entry: Entry) -> None:
    """Count what a new entry will take; one that came before any measurement has no size."""
    if isinstance(queue, ParkedLine):  # it waits in no queue
        entry.size = None
        return
    sizes = queue.lane.times.sizes()
    size = entry.size = sizes.of(entry.arrival.prompt_tokens) if sizes.usual_s > 0.0 else None
    if size is not None:
        sizes.join(size, queue.rank)


def best(queue: WaitQueue) -> Entry | None:
    """Return the entry that is next, retries aside, or None when none waits."""
    heap = queue.heap
    while heap:
        counter, seq, push, account = heap[0]
        if push != account.push or account.live == 0:
            heappop(heap)
            continue
        head = head_of(account)
        if account.counter == counter and head.seq == seq:
            return head
        queue.pushes += 1
        account.push = queue.pushes
        heapreplace(heap, (account.counter, head.seq, queue.pushes, account))
    return None


def best_of_others(queue: WaitQueue, users: frozenset[str]) -> Entry | None:
    """Return the entry that is next of other users than these, retries aside."""
    passed_over = []
    while (entry := best(queue)) is not None and entry.user.name in users:
        passed_over.append(heappop(queue.heap))
    for item in passed_over:
        heappush(queue.heap, item)
    return entry


def first_returned(queue: WaitQueue, node: Node) -> Entry | None:
    """Return the oldest that goes first and that a node may have."""
    return retries.first_for(queue.returned, node.name)


def next_for(queue: WaitQueue, node: Node, but: frozenset[str]) -> Entry | None:
    """Return the entry of others than some users that is next on a node, or None."""
    first = retries.first_for(queue.returned, node.name, but) if queue.returned.count else None
    return first or (best_of_others(queue, but) if but else best(queue))


def take(queue: WaitQueue, entry: Entry) -> None:
    """Take an entry out: the head of the best account, or a retry."""
    queue.waiting -= 1
    if entry.size is not None:
        queue.lane.times.by_size.leave(entry.size, queue.rank)
    if entry.goes_first:
        retries.remove(queue.returned, entry)
        return
    account = entry.account
    heappop(account.entries)
    account.live -= 1
    if account.live == 0:
        queue.backlogged -= 1
        account.entries.clear()
    if entry.price:
        queue.backlogs.leave(account, entry.price)


def charge(queue: WaitQueue, account: Account, amount: float) -> float:
    """Charge a dispatch; return the counter before it, which is where the clock now is."""
    start = account.counter
    floor = queue.clock - queue.burst
    if start < floor:
        start = floor
    if start > queue.clock:
        queue.clock = start
    if amount > queue.charge_max:
        queue.charge_max = amount
    account.counter = start + amount
    return start


def standing(queue: WaitQueue, account: Account | None) -> float:
    """Return the counter with which a user waits here, or would if it joined now.

    Who joins has banked no credit, and at most one largest charge of debt.
    """
    if account is None:
        return queue.clock - queue.burst
    if account.live:
        return account.counter
    ceiling = queue.clock + queue.charge_max
    counter = account.counter if account.counter < ceiling else ceiling
    floor = queue.clock - queue.burst
    return counter if counter > floor else floor


def correct(queue: WaitQueue, account: Account, amount: float) -> None:
    """Add to an account, or give back (never below the clock less the burst)."""
    counter = account.counter + amount
    floor = queue.clock - queue.burst
    account.counter = counter if counter > floor else floor
    if amount < 0 and account.live:
        _push(queue, account, head_of(account).seq)


def _push(queue: WaitQueue, account: Account, seq: int) -> None:
    heap = queue.heap
    if len(heap) > 2 * queue.backlogged + SWEEP_SLACK:
        queue.heap = heap = [i for i in heap if i[2] == i[3].push and i[3].live]
        heapify(heap)
    queue.pushes += 1
    account.push = queue.pushes
    heappush(heap, (account.counter, seq, queue.pushes, account))


def charge_elsewhere(user: User, queue: WaitQueue, node: Node, amount: float) -> None:
    """Charge the user in the other queues of the class that this node's capacity also serves."""
    gone = []
    for other, account in user.accounts.items():
        if other is not queue and other.rank == queue.rank and node.name in other.lane.nodes:
            correct(other, account, amount)
        elif not (other.lane.nodes or other.lane.resting) and not other.lane.unfinished:
            gone.append(other)
    for other in gone:  # its lane is no more
        del user.accounts[other]
