"""The mutable records behind the tickets. Private to the core: nobody outside reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.retries import NOWHERE
from forebay.core.states import NEXT, after

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.fairness import Account, WaitQueue
    from forebay.core.nodes import Node
    from forebay.core.rates import Claim, KeyRate
    from forebay.core.sizes import Size
    from forebay.core.states import Cause, State


class User:
    """One party of the fair sharing. Forgotten when idle and no different from a new one."""

    __slots__ = ("accounts", "name", "unfinished", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.accounts: dict[WaitQueue, Account] = {}
        self.waiting = 0  # live requests in the queue; jobs are not counted
        self.unfinished = 0  # everything accepted and not ended, jobs included


class Users:
    """Users with something unfinished, and a bounded memory of idle ones.

    An idle user whose counters are all at or below the clock is the same as a new one and is
    forgotten at once. The others are ahead of the clock by what they were served last; at most
    `idle_max` of those are kept, the longest idle are forgotten first: what such a user gains is
    at most one charge, and memory stays bounded under any number of invented names. Of as many that
    were forgotten and had waited, each queue knows how much they send.
    """

    __slots__ = ("_idle", "_known", "idle_max")

    def __init__(self, idle_max: int) -> None:
        self.idle_max = idle_max
        self._known: dict[str, User] = {}
        self._idle: dict[str, None] = {}  # longest idle first

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> User | None:
        return self._known.get(name)

    def arrive(self, name: str) -> User:
        """Return the user of a newly accepted entry, counting it as unfinished."""
        user = self._known.get(name)
        if user is None:
            user = self._known[name] = User(name)
        elif user.unfinished == 0:
            del self._idle[name]
        user.unfinished += 1
        return user

    def leave(self, user: User) -> None:
        """Count one entry as ended; forget the user, or remember it among the idle."""
        user.unfinished -= 1
        if user.unfinished:
            return
        accounts = user.accounts
        for queue, account in list(accounts.items()):
            if account.counter <= queue.clock - queue.burst:
                del accounts[queue]
                if account.came:
                    queue.backlogs.remember(user.name, account, self.idle_max)
        if accounts:
            self._idle[user.name] = None
            while len(self._idle) > self.idle_max:
                self._forget(next(iter(self._idle)))
        else:
            del self._known[user.name]

    def _forget(self, name: str) -> None:
        del self._idle[name]
        del self._known[name]


class Entry:
    """One ticket: what arrived, where it stands, and the lease it holds while it runs."""

    __slots__ = (
        "account", "arrival", "attempt", "cached_tokens", "charged",
        "charged_account", "charged_on", "charged_queue", "claim", "class_charged", "cost",
        "counted", "deadline_s", "excluded", "goes_first", "guest", "held_from", "held_on",
        "held_until_s", "id", "joins_load", "kind", "lent", "node", "p50_s", "prefix", "price",
        "promised_in", "promotes_at_s", "promotes_in_s", "queue", "queued", "raw_s", "revoked",
        "room", "seq", "since_s", "size", "state", "unreached", "user", "wait_left_s", "waited_s",
    )  # fmt: skip

    def __init__(self, arrival: Arrived, seq: int, user: User, now_s: float) -> None:
        self.arrival = arrival
        self.id = arrival.id
        self.prefix = arrival.prefix  # asked for at every turn, and looked up by name there
        self.seq = seq  # its place; never changes
        self.user = user
        self.state: State = "new"
        self.since_s = now_s  # when the present state began to count: waiting, or running
        self.waited_s = 0.0  # waiting before the present state
        self.attempt = 0
        self.cost = 0.0  # tokens, as estimated at dispatch
        self.charged = 0.0  # what its user's account was charged at dispatch
        self.charged_on: Node | None = None  # where; None before its first start
        self.charged_queue: WaitQueue  # the queue and account then: age may have moved it since
        self.charged_account: Account
        self.class_charged = 0.0  # what its class was charged on its node
        self.node: Node | None = None  # set exactly while it holds a lease
        self.account: Account
        self.queue: WaitQueue
        self.claim: Claim | None = None  # on the limits of its key, where they may delay it
        self.room: KeyRate | None = None  # of its key, where that has a cap
        self.revoked = ""  # the code to answer with, once its owner was told to abort it
        self.excluded = NOWHERE  # nodes that failed it, or that its owner does not reach
        self.unreached = NOWHERE  # the latter of these
        self.cached_tokens = 0  # of its prompt, where it runs or ran last
        self.held_on: Node | None = None  # waits for this one, because of its cache
        self.held_from = NOWHERE  # nodes that it is kept off meanwhile
        self.held_until_s = 0.0  # valid while it is held; not 0 once it has been
        self.goes_first = False  # whether it stands, or stood last, before all others of its queue
        self.wait_left_s = 0.0  # what is left of its waiting time; the clock stops while it runs
        self.deadline_s = 0.0  # valid while waiting
        self.promotes_in_s = 0.0  # what is left of the interval before it counts one class higher
        self.promotes_at_s = 0.0  # valid while waiting
        self.joins_load = False  # whether its model was being loaded by another when it started
        self.lent = False  # whether its slot belongs to a loan, and goes back there
        self.queued = False  # whether its owner was told to wait
        self.guest = False  # whether it waits only for a job to end, outside the bound on waiting
        self.counted = False  # whether it is among those that had to wait
        self.p50_s: float | None = None  # promised on arrival
        self.promised_in: WaitQueue | None = None  # where; None where it was about a load
        self.raw_s: float  # the estimate behind the promise; valid with `promised_in`
        self.kind: int  # the same
        self.size: Size | None = None  # as which it is, or was last, counted among those that wait
        self.price = 0.0  # what a dispatch would charge its user, as known when it began to wait

    def __lt__(self, other: Entry) -> bool:
        """Break a tie of two places: taken over from different cores, they may be the same."""
        return self.id < other.id

    def __hash__(self) -> int:
        """Stay hashable: compiled, a class that compares is not, unless it says how."""
        return id(self)

    def move(self, cause: Cause) -> None:
        try:
            self.state = NEXT[self.state][cause]
        except KeyError:
            self.state = after(self.state, cause)  # raises, and says what is wrong

    def total_wait_s(self, now_s: float) -> float:
        if self.state == "waiting":
            return self.waited_s + now_s - self.since_s
        return self.waited_s
