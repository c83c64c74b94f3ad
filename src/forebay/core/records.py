"""What the core remembers, as data: users, entries, queues, lanes, nodes, keys with limits.

Records hold no rules. What may happen to them stands in the modules beside this one, as functions
that take a record first: `fairness` for queues and accounts, `retries`, `lanes`, `nodes`, `memory`,
`shares`, `rates`. Nobody outside the core reads them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from forebay.core.buckets import Bucket
from forebay.core.options import KeyLimits
from forebay.core.prefixes import PrefillTime, PrefixCache
from forebay.core.service_times import ServiceTimes
from forebay.core.speeds import Work

if TYPE_CHECKING:
    from forebay.core.actions import WhyBetter
    from forebay.core.cache_room import CacheRoom
    from forebay.core.events import Arrived
    from forebay.core.speeds import Speed
    from forebay.core.states import State

SlotsPhase: TypeAlias = Literal["search", "hold", "higher", "lower"]
FirstInLine: TypeAlias = "dict[Names, list[Entry]]"
"""What goes before all others of a queue, oldest first, by the nodes that it is kept off."""
NEVER_S: Final = float("inf")
Names: TypeAlias = frozenset[str]
NOWHERE: Final[Names] = frozenset()
BROKEN_OFF_MAX: Final = 256  # no node has more slots
SWEEP_SLACK: Final = 64
"""Dead items always tolerated, so that small heaps are never swept."""
LOADS_RECENT: Final = 9
"""The median of so many is a load time: a run may be several times as long as a usual one."""


class User:
    """One party of the fair sharing. Forgotten when idle and no different from a new one."""

    __slots__ = ("accounts", "name", "unfinished", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.accounts: dict[WaitQueue, Account] = {}
        self.waiting = 0  # live requests in the queue; jobs are not counted
        self.unfinished = 0  # everything accepted and not ended, jobs included


class Account:
    """One user's standing in one queue, or that of one of its conversations."""

    __slots__ = (
        "counter", "entries", "live", "parent", "push", "turns", "user", "weight",
    )  # fmt: skip

    def __init__(
        self, user: User, counter: float, weight: float, parent: Account | None = None
    ) -> None:
        self.user = user
        self.counter = counter  # service over weight, in the queue's virtual time
        self.weight = weight
        self.parent = parent  # the user's, where this is a conversation's
        self.entries: list[tuple[int, Entry]] = []  # heap by seq; may hold dead ones
        self.live = 0  # entries that still wait, of all its conversations
        self.turns: Turns | None = None  # where these stand instead, once one is named
        self.push = 0  # the number of its current item in the queue's heap; older ones are stale


class FairQueue:
    """Accounts that take turns: a heap of them by counter, each with its entries."""

    def __init__(self, burst: float) -> None:
        self.burst = burst
        self.clock = 0.0  # V; never runs backwards
        self.heap: list[tuple[float, int, int, Account]] = []  # counter, head seq, push, account
        self.pushes = 0  # the number of the last item pushed
        self.backlogged = 0  # accounts with something live
        self.charge_max = 0.0  # the largest charge made here


class Turns(FairQueue):
    """The conversations of one user in one queue."""

    def __init__(self, burst: float) -> None:
        super().__init__(burst)
        self.accounts: dict[str, Account] = {}  # by conversation
        self.idle: dict[str, None] = {}  # those with nothing waiting, the longest idle first


class WaitQueue(FairQueue):
    """What waits in one class and lane; its users take turns."""

    def __init__(self, lane: Lane, rank: int, burst: float) -> None:
        super().__init__(burst)
        self.lane = lane
        self.rank = rank
        self.waiting = 0  # live entries, returned ones included
        self.returned: FirstInLine = {}
        self.running = 0
        self.unserved_since_s = 0.0  # when it became non-empty, or was last served


class ParkedLine(WaitQueue):
    """The parked entries of one key in one queue; its users take turns here as they do there."""

    def __init__(self, queue: WaitQueue, gated: bool) -> None:
        super().__init__(queue.lane, queue.rank, queue.burst)
        self.queue = queue
        self.gated = gated  # whether its entries wait for `max_running`, too
        self.offer: Entry | None = None  # the one that was put back, until it starts or ends
        self.accounts: dict[User, Account] = {}


class Lane:
    """Requests that the same set of nodes can serve: one model in one family."""

    def __init__(self, model: str, family: str, ranks: int, burst: float) -> None:
        self.model = model
        self.family = family
        self.listed: dict[str, Node] = {}  # all that have the model, whatever their state
        self.nodes: dict[str, Node] = {}  # those that may be sent it while they are online
        self.queues = [WaitQueue(self, rank, burst) for rank in range(ranks)]
        self.running: dict[str, Entry] = {}
        self.parked = 0  # live requests that wait for their key's rate, in no queue
        self.guests = 0  # waiting for a job to end, and else not allowed to wait
        self.unfinished = 0  # everything accepted for it and not ended
        self.slots = 0  # of nodes that are online, resting or not
        self.is_unlisted = False  # whether it is there for nodes only that have yet to say more
        self.is_up = False  # whether any node is online, resting or not
        self.times = ServiceTimes()
        self.prefill = PrefillTime()
        self.work = Work()
        self.speeds: dict[str, Speed] = {}  # of the nodes that were measured

    @property
    def waiting(self) -> int:
        """How many live requests wait here; the last queue, of jobs, is left out."""
        return self.parked + sum([queue.waiting for queue in self.queues[:-1]])


class Estimate(NamedTuple):
    """How long a wait will be from here on."""

    header_s: float
    """Those ahead times the mean service over the slots: simple, for people."""
    p50_s: float
    p90_s: float
    raw_s: float = 0.0
    kind: int = 0
    queue: WaitQueue | None = None
    """Where its outcome is learned from; None where it is not."""


class Sample(NamedTuple):
    """One request that was answered, or the mean of several."""

    model: str
    user: str
    prompt_tokens: int
    output_tokens: int
    first_byte_s: float | None
    ran_s: float
    running: int
    """How many ran with it, itself among them."""


class Limit:
    """What is known of one node's number of slots."""

    def __init__(self, start: int, ceiling: int, *, is_named: bool = False) -> None:
        self.is_named = is_named
        self.ceiling = ceiling
        self.slots = start
        self.is_trial = False  # whether `slots` was set for a round only, or set back after one
        self.reason = ""  # why it is what it is, for people; "" before the first change
        self.phase: SlotsPhase = "hold" if is_named else "search"
        self.home = self.slots  # the number that holds, while another is tried
        self.cap = self.ceiling  # of this search
        self.falls = False  # whether it tries fewer first, because requests became slower
        self.is_other = False  # whether the last round at home was clearly slower or faster
        self.since_s = 0.0  # when `slots` was set
        self.refused_s = -NEVER_S  # when a number that was only tried was refused last
        self.skip = self.slots - 1  # samples of requests that started together
        self.samples: list[Sample] = []  # of the round at hand, the latest last
        self.rounds: dict[int, list[Sample]] = {}  # of this search, by number
        self.reference: list[Sample] = []  # at home, as it was before
        self.models: dict[str, None] = {}  # of these; empty before there are any
        self.others = 0  # samples of other models since
        self.answers = 0  # at home since the last trial
        self.tries_lower = False
        self.does: dict[int, float] = {}  # throughput, as the last search found it


class Load:
    """A model that was put into memory, and the run that had it loaded."""

    def __init__(self, entry: Entry, began_s: float) -> None:
        self.entry = entry
        self.began_s = began_s
        self.is_over = False  # certainly: a run of the model has ended well since


class Shares:
    """One node's virtual times, by which queues and classes share its slots."""

    def __init__(self, ranks: int) -> None:
        self.clocks = [0.0] * ranks
        self.offsets: dict[WaitQueue, float] = {}
        self.class_clock = 0.0
        self.class_tags = [0.0] * ranks


class Node:
    """One backend server."""

    def __init__(self, name: str, seq: int, ranks: int) -> None:
        self.name = name
        self.seq = seq  # in which order nodes became known
        self.state = "offline"
        self.away_since_s = 0.0  # valid while it is not online
        self.is_new = False  # whether it has never answered
        self.ready_at_s: float | None = None  # while it loads, as far as that is known
        self.slots = 0
        self.limit: Limit | None = None  # how its slots are found; None where they are not
        self.limit_kept: Limit | None = None  # the same, also while it is told how many it has
        self.gpu_load = 0.0
        self.models: tuple[str, ...] = ()
        self.families: tuple[str, ...] = ()
        self.on_trial: tuple[str, ...] = ()  # models of which one request at a time may run here
        self.leases: dict[str, str] = {}  # what runs here, by id, and its model
        self.lent = 0  # slots set aside for others to fill, and not filled as far as we know
        self.rest_until_s = 0.0
        self.broken_off: deque[float] = deque(maxlen=BROKEN_OFF_MAX)  # cancelled here, and when
        self.strikes: dict[str, tuple[int, float]] = {}  # by user, and when; the latest last
        self.wake_s = NEVER_S  # when the core will look at it again by itself
        self.removed = False  # and kept only until all its leases are back
        self.used_at = 0  # the sequence number of the last dispatch: least recently used
        self.loaded: dict[str, float] | None = None  # model -> since when it can serve
        self.holds_all = True  # whether no model that it lists is out of memory
        self.loaded_max = 1
        self.lanes: dict[str, dict[str, Lane]] = {}  # that it lists, by model and family
        self.load_s = 0.0  # S of the swap rule, as told or measured; 0 while unknown
        self.load_is_told = False
        self.loads_measured: deque[tuple[str, float]] = deque(maxlen=LOADS_RECENT)
        """The last loads: the model, and what its load and first run took."""
        self.loads: dict[str, Load] = {}  # whose first run has not ended, by model
        self.left_at_s: dict[str, float] = {}  # when a model left the memory last
        self.swap_target: str | None = None  # draining until this model can be loaded
        self.swap_victim = ""  # ... in the place of this one
        self.swap_rank = 0  # for the sake of this class
        self.shares = Shares(ranks)
        self.prefixes = PrefixCache()
        self.held: dict[Entry, None] = {}  # that wait for it, though others are free
        self.idle = 1.0  # the share of its slots that was free, over minutes
        self.idle_at_s: float | None = None  # up to when that was counted
        self.idle_for_s = 0.0  # over how long
        self.room: CacheRoom | None = None  # in its key-value cache; None where it does not say


class Hold:
    """A node that an entry waits for because it would end sooner there than where it may start."""

    def __init__(
        self, node: Node, why: WhyBetter, gain_s: float, times_as_fast: float, until_s: float
    ) -> None:
        self.node = node
        self.why = why
        self.gain_s = gain_s
        self.times_as_fast = times_as_fast
        self.until_s = until_s
        self.kept_off = NOWHERE  # the nodes that it may not start on meanwhile


class KeyRate:
    """One key with limits: its buckets, what counts against its cap, and what waits for them."""

    def __init__(self, key: str, seq: int, ranks: int) -> None:
        self.key = key
        self.seq = seq  # in which order keys became known
        self.limits = KeyLimits()
        self.requests = Bucket(0, 0.0)  # of these limits
        self.tokens = Bucket(0, 0.0)
        self.used_today = 0.0
        self.wake_s = NEVER_S  # when it will be looked at again
        # Those that are not empty, or whose offer waits; by queue, and whether they are gated.
        self.lines: dict[tuple[WaitQueue, bool], ParkedLine] = {}
        self.running_max = 0  # its cap, as last told
        self.held = 0  # what counts against that
        self.calls = 0  # of its live calls and prompts, those that wait
        self.tickets = 0  # everything unfinished
        self.owed = [0] * ranks  # entries of each class that wait and are not charged
        self.tokens_owed = [0.0] * ranks


class Claim:
    """What one entry takes of its key's rate."""

    def __init__(self, rate: KeyRate, tokens: float, gated: bool) -> None:
        self.rate = rate
        self.tokens = tokens  # as estimated, then as used
        self.taken = 0.0  # of them, out of the bucket: less where it would be in debt for more
        self.gated = gated  # a job or a prompt of a key that has a cap: counted while it runs
        self.held = False  # ... as it does now
        self.parked_s = 0.0  # since when it is parked
        self.charged = False
        self.rank: int | None = None  # of the class in which it is counted as waiting
        self.line: ParkedLine | None = None  # where it is parked, or was before it was put back
        self.parked = False
        self.was_parked = False  # at any time


class Entry:
    """One ticket: what arrived, where it stands, and the lease it holds while it runs."""

    __slots__ = (
        "account", "answered_at_s", "arrival", "attempt", "cached_tokens", "charged",
        "charged_account", "charged_on", "charged_queue", "claim", "class_charged", "cost",
        "counted", "deadline_s", "excluded", "goes_first", "guest", "held_until_s", "hold",
        "id", "joins_load", "lent", "node", "others", "prefix", "price", "promised",
        "promotes_in_s", "queue", "queued", "revoked", "room", "seq", "since_s",
        "state", "unreached", "user", "wait_left_s", "waited_s", "wake_s",
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
        answered_s = arrival.answered_after_s
        self.answered_at_s = now_s + answered_s if answered_s > 0.0 else NEVER_S
        self.cost = 0.0  # tokens, as estimated on arrival
        self.price = 0.0  # what a dispatch charges its user, times its weight
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
        self.revoked: str | None = None  # the code to answer with, once its owner was told to abort
        self.excluded = NOWHERE  # nodes that failed it, or that its owner does not reach
        self.unreached = NOWHERE  # the latter of these
        self.cached_tokens = 0  # of its prompt, where it runs or ran last
        self.others = 0.0  # that ran on its node when it started there
        self.hold: Hold | None = None  # what it waits for, though a node is free
        self.held_until_s = 0.0  # when its first hold was to end; 0 before it was held
        self.goes_first = False  # whether it stands, or stood last, before all others of its queue
        self.wait_left_s = 0.0  # what is left of its waiting time; the clock stops while it runs
        self.wake_s = NEVER_S  # when the core will look at it again by itself, while it waits
        self.deadline_s = NEVER_S  # valid while waiting; never for jobs, and while it stands still
        self.promotes_in_s = NEVER_S  # of waiting, before it counts one class higher
        self.joins_load = False  # whether its model was being loaded by another when it started
        self.lent = False  # whether its slot belongs to a loan, and goes back there
        self.queued = False  # whether its owner was told to wait
        self.guest = False  # whether it waits only for a job to end, outside the bound on waiting
        self.counted = False  # whether it is among those that had to wait
        self.promised: Estimate | None = None  # when it began to wait

    def __lt__(self, other: Entry) -> bool:
        """Break a tie of two places: taken over from different cores, they may be the same."""
        return self.id < other.id

    def __hash__(self) -> int:
        """Stay hashable: compiled, a class that compares is not, unless it says how."""
        return id(self)
