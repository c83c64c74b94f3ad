"""Who is next inside one class and lane: start-time fair queueing between users, and inside them.

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

**Conversations.** Those of one user take turns inside the user's: its account holds a queue of the
same kind, with a clock of its own, and what a dispatch costs is charged at both levels. An account
has one once it has met a conversation with a name; all that name none are one.
Of idle conversations at most `IDLE_MAX` are remembered, and none of a user with nothing unfinished.

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
from forebay.core.records import NOWHERE, SWEEP_SLACK, Account, Turns

if TYPE_CHECKING:
    from forebay.core.records import Entry, FairQueue, Names, Node, User, WaitQueue

IDLE_MAX: Final = 64
"""Conversations with nothing waiting that are remembered of a user in a queue."""


def lives_in(entry: Entry, account: Account) -> bool:
    """Say whether an entry of an account's heap still waits there."""
    return entry.state == "waiting" and entry.account is (account.parent or account)


def head_of(account: Account) -> Entry:
    """Return the live entry of an account that is next; there must be one."""
    if account.turns is not None:
        head = best(account.turns)
        assert head is not None
        return head
    entries, owner = account.entries, account.parent or account
    while True:
        entry = entries[0][1]
        if entry.state == "waiting" and entry.account is owner:
            return entry
        heappop(entries)


def turn_of(account: Account, conversation: str, burst: float) -> Account:
    """Return where a conversation of a user stands; the account has its turns from then on."""
    turns = account.turns
    if turns is None:
        turns = account.turns = Turns(burst)
        if account.live:  # of those that name none
            turn = turns.accounts[""] = Account(account.user, 0.0, account.weight, account)
            turn.entries, account.entries = account.entries, []
            turn.live, turns.backlogged = account.live, 1
            _push(turns, turn, head_of(turn).seq)
    known = turns.accounts.get(conversation)
    if known is None:
        counter = turns.clock - turns.burst
        known = Account(account.user, counter, account.weight, account)
        turns.accounts[conversation] = known
        _rest(turns, conversation)
    return known


def _rest(turns: Turns, conversation: str) -> None:
    """Remember a conversation with nothing waiting; as a new one it would gain one charge."""
    turns.idle[conversation] = None
    if len(turns.idle) > IDLE_MAX:
        longest = next(iter(turns.idle))
        del turns.idle[longest], turns.accounts[longest]


def account_of(queue: WaitQueue, user: User, weight: float) -> Account:
    """Return the user's standing here, new if there is none."""
    account = user.accounts.get(queue)
    if account is None:
        account = user.accounts[queue] = Account(user, queue.clock - queue.burst, weight)
    account.weight = weight
    return account


def join(queue: WaitQueue, entry: Entry, *, first: bool) -> None:
    """Add an entry: the `first`, which was the best once, before all that never were."""
    queue.waiting += 1
    entry.goes_first = first
    if first:
        retries.add(queue.returned, entry)
    else:
        _enter(queue, entry.account, entry)


def _enter(queue: FairQueue, account: Account, entry: Entry) -> None:
    """Add an entry behind the older ones of its conversation, to be found when it is next."""
    conversation = entry.arrival.conversation
    if account.parent is None and (conversation or account.turns is not None):
        turn = turn_of(account, conversation, queue.burst)
        if (turns := account.turns) is not None:
            turns.idle.pop(conversation, None)
            _enter(turns, turn, entry)
    else:
        heappush(account.entries, (entry.seq, entry))
    if account.live == 0:
        queue.backlogged += 1
        account.counter = standing(queue, account)
        account.live = 1
        _push(queue, account, entry.seq)
        return
    account.live += 1
    if head_of(account) is entry:
        _push(queue, account, entry.seq)


def best(queue: FairQueue) -> Entry | None:
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


def best_of_others(queue: WaitQueue, users: Names) -> Entry | None:
    """Return the entry that is next of other users than these, retries aside."""
    passed_over = []
    while (entry := best(queue)) is not None and entry.user.name in users:
        passed_over.append(heappop(queue.heap))
    for item in passed_over:
        heappush(queue.heap, item)
    return entry


def next_for(queue: WaitQueue, node: Node, but: Names = NOWHERE) -> Entry | None:
    """Return the entry of others than some users that is next on a node, or None."""
    first = retries.first_for(queue.returned, node.name, but) if queue.returned else None
    return first or (best_of_others(queue, but) if but else best(queue))


def leave(queue: WaitQueue, entry: Entry) -> None:
    """Take an entry out, wherever it stands: to a node, to its end, or to another queue."""
    queue.waiting -= 1
    if entry.goes_first:
        retries.remove(queue.returned, entry)
    else:
        _withdraw(queue, entry.account, entry)


def _withdraw(queue: FairQueue, account: Account, entry: Entry) -> None:
    """Take an entry out of an account; one that is not at its head is left there for dead."""
    entries, turns = account.entries, account.turns
    if turns is not None:
        turn = turns.accounts[entry.arrival.conversation]
        _withdraw(turns, turn, entry)
        if turn.live == 0:
            _rest(turns, entry.arrival.conversation)
    account.live -= 1
    if account.live == 0:
        queue.backlogged -= 1
        entries.clear()
    elif turns is not None:
        _push(queue, account, head_of(account).seq)  # it may be older than the last one was
    elif entries[0][1] is entry:
        heappop(entries)
    elif len(entries) > 2 * account.live + SWEEP_SLACK:
        account.entries = [item for item in entries if lives_in(item[1], account)]
        heapify(account.entries)


def charge(queue: FairQueue, account: Account, entry: Entry, amount: float) -> float:
    """Charge a dispatch to a user, and first to its conversation there.

    Returns the counter before it, which is where the clock now is.
    """
    conversation = entry.arrival.conversation
    if account.parent is None and (conversation or account.turns is not None):
        turn = turn_of(account, conversation, queue.burst)
        if (turns := account.turns) is not None:
            charge(turns, turn, entry, amount)
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


def settle(
    queue: WaitQueue, account: Account, entry: Entry, amount: float, node: Node | None = None
) -> None:
    """Correct what a dispatch on a node was charged to its user, and to its conversation."""
    turns, charged = account.turns, entry.charged + amount
    if charged > queue.charge_max:
        queue.charge_max = charged
    turn = None if turns is None else turns.accounts.get(entry.arrival.conversation)
    if turns is not None and turn is not None:
        if charged > turns.charge_max:
            turns.charge_max = charged
        correct(turns, turn, amount)
    correct(queue, account, amount)
    if node is not None and len(entry.user.accounts) > 1:
        charge_elsewhere(entry.user, queue, node, amount)


def standing(queue: FairQueue, account: Account | None) -> float:
    """Return the counter with which an account waits here, or would if it joined now.

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


def correct(queue: FairQueue, account: Account, amount: float) -> None:
    """Add to an account, or give back (never below the clock less the burst)."""
    counter = account.counter + amount
    floor = queue.clock - queue.burst
    account.counter = counter if counter > floor else floor
    if amount < 0 and account.live:
        _push(queue, account, head_of(account).seq)


def _push(queue: FairQueue, account: Account, seq: int) -> None:
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
        elif not other.lane.listed and not other.lane.unfinished:
            gone.append(other)
    for other in gone:  # its lane is no more
        del user.accounts[other]
