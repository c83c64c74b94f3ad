"""Events: the only input of the core.

Events are plain, frozen, serialisable values, because with several replicas they travel between
processes (`msgspec.msgpack.encode(event)` and a decoder of `Event` are all it takes). Names are
in the past tense. Late events about a ticket that has ended are harmless: they are ignored.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from forebay.core.options import Options

NodeState: TypeAlias = Literal["online", "loading", "offline", "draining"]
Family: TypeAlias = str
WhyFailed: TypeAlias = Literal["", "refused", "timed_out", "failed"]
"""Why a run was of no use; "" where it was, or where that is unknown."""
SlotsKind: TypeAlias = Literal["fixed", "named", "found", "lent"]
"""What a number of slots is: `fixed`, by the operator or a guard; `named` by the engine, which is
where to begin and the most there are; to be `found`, from this number on; `lent` by another core,
which alone changes it. Of a number that was `named` or `found`, the core says what became of it in
`SlotsChanged`; while a later `NodeChanged` is `fixed`, it counts, and then again the one found."""


class Arrived(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A request came in, or a job wants idle capacity. Answered by a `Decision`."""

    id: str
    """Unique among everything unfinished; a second one alive is a bug of the caller."""
    model: str
    """"" takes no slot and only counts in the rate of its key. Answered at once by a `Reject`:
    `counted`, or `rate_limited` where the key is over its rate."""
    family: Family = "openai"
    user: str = ""
    """Whom fairness is between."""
    priority: str = "normal"
    """A name of `Options.priorities`; anything else counts as `normal`."""
    prompt_tokens: int = 0
    output_limit: int = 0
    """The caller's own cap on output tokens; 0 when it gave none."""
    size_bytes: int = 0
    weight: float = 1.0
    """The user's share against others; 2 gets twice the service of 1."""
    affinity: str = ""
    """Prefer the node that last served this text. Never a reason to wait. "" is none."""
    max_wait_s: float | None = None
    """The caller's own limit on waiting; may only shorten the operator's, `Options.wait_s_max`."""
    stream: bool = False
    job: bool = False
    """Background work: takes only idle slots, outside the bounds and the wait limit."""
    key: str = ""
    """The API key; its rate is that of `Options.key_limits`."""
    key_running_max: int = 0
    """How much of the key may be unfinished at once: live requests that wait or run, and jobs and
    patient ones that have started; these wait where it is reached. 0 is no limit."""
    fallbacks: tuple[str, ...] = ()
    """Models to run instead, in order, where `model` cannot run now. Settled before any waiting:
    if none of them can run at once either, it waits for the first that a node is up for."""
    patient: bool = False
    """Its owner keeps it where there is no room, and comes again: no refusal is counted then."""
    request_id: str = ""
    """What its caller knows it by, where `id` is something else; the core does not look at it."""
    digest: int | None = None
    """Of the body: by it who found no room is known again when it comes back, and takes its old
    arrival number. None keeps no number."""
    prefix: tuple[int, ...] = ()
    """The prompt as a chain of hashes, at most 64: equal ones are equal from the beginning of the
    prompt up to there. Keyed, so that nobody can guess a text from them."""
    prefix_tokens: tuple[int, ...] = ()
    """About how many tokens each of these parts has."""
    conversation: str = ""
    """Which of its user's conversations it belongs to; all that name none are one."""
    answered_after_s: float = 0.0
    """A stream that has not begun so long after its arrival is answered by then, so that it should
    keep its place longer than others; 0 is never."""


class Resumed(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A ticket that another core had accepted before this one took over; no decision is returned.

    It keeps its place and its age, and no bound refuses it: it was admitted once. With a `node`
    it runs there already and holds a lease.
    """

    arrival: Arrived
    seq: int = 0
    """Its place, as `Wait` or `Route` told it; 0 gives it the next one."""
    waited_s: float = 0.0
    attempt: int = 0
    """How often it has started."""
    node: str = ""
    ran_s: float = 0.0
    """How long ago it started there."""
    excluded: tuple[str, ...] = ()
    """Nodes that failed it."""
    lent: bool = False
    """It runs on a slot that was lent (`Lent`), and gives it back to the loan."""


class Finished(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer is complete (or broke off after its first byte): the slot is free.

    The token counts are the real cost; -1 means unknown, and the estimate stands.
    """

    id: str
    ok: bool = True
    prompt_tokens: int = -1
    output_tokens: int = -1
    strike: bool = False
    """It failed by itself: the node has answered others meanwhile, or had begun to answer it."""
    first_byte_s: float | None = None
    """How long after its start the first byte of the answer came; None where that is unknown."""
    ran_s: float | None = None
    """How long it ran at the node. Where it is None, the time since `Route` on the core's clock."""
    why: WhyFailed = ""
    """Where it is not ok: what kind of failure it was."""
    count: int = 1
    """How many of its kind ended like this, on lent slots: its numbers are the mean of theirs."""
    most: int = 1
    """How many of these ran at once, at most."""


class Returned(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """It failed before its first answer byte: the slot is free, the entry is back in its place."""

    id: str
    exclude: bool = True
    """Keep it off that node from now on. False when the node was merely busy: then post
    `NodeRested` first, or it goes straight back there."""
    strike: bool = False
    """As in `Finished`."""
    why: WhyFailed = ""
    """As in `Finished`. A refusal lowers the slots by `NodeRested`, not by this."""


class Cancelled(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Its owner gave it up (the client left, the upstream call is aborted); no answer is needed."""

    id: str
    prompt_tokens: int = -1
    output_tokens: int = -1
    unused: bool = False
    """It had a slot and sent nothing to the node: its key is charged nothing at all."""


class Revoked(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Someone else wants it gone (an admin, a revoked key): its owner must answer with `code`."""

    id: str
    code: str = "cancelled"


class NodeChanged(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """All that is known of a node now; adds it when it is new. Also the sign of a good probe."""

    name: str
    """In brackets, `(guards)`, it is no node yet, but stands for some that are on their way."""
    slots: int
    models: tuple[str, ...]
    families: tuple[Family, ...] = ("openai",)
    state: NodeState = "online"
    gpu_load: float = 0.0
    """0 to 1; unknown is 0."""
    loaded: tuple[str, ...] | None = None
    """Models in memory now; None when the node holds all its models and nothing ever swaps."""
    loaded_max: int = 1
    """How many models fit in memory together; only read when `loaded` is given."""
    load_s: float = 0.0
    """How long it takes to load a model; 0 when unknown."""
    failing: tuple[str, ...] = ()
    """Models that rest there for seconds, because they failed: known and up, nothing is sent."""
    on_trial: tuple[str, ...] = ()
    """Models that have rested there: one request at a time may run, until one has succeeded."""
    away_s: float = 0.0
    """While it is not online: how long ago that began, with its first failure after the last good
    answer to anyone. A duration, because the clocks of several processes do not agree."""
    is_new: bool = False
    """It has never answered: `away_s` counts from when it was made known."""
    ready_in_s: float | None = None
    """While it loads: when it will be ready, going by earlier loads; None when unknown."""
    slots_kind: SlotsKind = "fixed"
    kv_free_tokens: int = -1
    """Tokens for which its key-value cache has room, as the node says; -1 when unknown, and then
    it limits nothing."""
    kv_reading: int = 0
    """Tells one reading of it from another, a later one being higher: what was started since is
    taken off until there is a new one."""


class NodeRested(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A node said it is busy (429, 503): one slot fewer (floor 1), nothing new for `rest_s`.

    Or it said how many requests are `waiting` inside it: so many fewer, and no rest.

    Where a request was broken off there in the last second, most likely the node has not noticed
    yet: it keeps its slots, and a rest of up to 1 s is only 0.1 s. Each excuses one refusal.
    """

    name: str
    rest_s: float = 1.0
    waiting: int = 0
    """As the engine itself counts, in a reading just made; 0 is a refusal."""


class Lent(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Slots of a node were set aside for someone else to fill, or came back (below 0).

    They count as taken. What is started in them is told afterwards, by `Resumed`.
    """

    name: str
    change: int


class NodeRemoved(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A node is gone from the configuration; what runs there may still end well."""

    name: str


class OptionsChanged(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The operator changed limits. Lower bounds drain: nothing accepted is dropped."""

    options: Options


class KeysUsed(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """What keys with limits have used, as others know it; only ever counted upwards.

    Post it when a core begins to decide, and now and then: clocks drift.
    """

    tokens_today: dict[str, int] = {}
    """By key, since 00:00 UTC, of all that has ended."""
    day_ends_in_s: float = 0.0
    """How long until that day ends; 0 where it is not known."""
    minute_is_used: bool = False
    """Another core decided until now, and may have let every key use all of its last minute."""


class Ticked(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Time has passed: expire what is due. Post it at `Scheduler.next_deadline_s()`."""


class Inspected(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Someone asks about one ticket; answered by `Describe`, or by nothing when it has ended."""

    id: str


class Observed(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Someone asks for the whole picture; answered by `Snapshot`."""


class Audited(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A caller compares its books: which leases does it hold? Answered by `Audit`."""


class ShutDown(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """No more: every waiter is answered, every newcomer refused; what runs may finish."""


Event: TypeAlias = (
    Arrived
    | Resumed
    | Finished
    | Returned
    | Cancelled
    | Revoked
    | NodeChanged
    | NodeRested
    | Lent
    | NodeRemoved
    | OptionsChanged
    | KeysUsed
    | Ticked
    | Inspected
    | Observed
    | Audited
    | ShutDown
)
"""Everything that `Scheduler.handle` takes."""
