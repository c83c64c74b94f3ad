"""Actions: the only output of the core.

Actions are plain, frozen, serialisable values like the events, with names in the imperative. The
answer to an arrival is a `Decision`: it runs now, it waits (and why, and how long), or it is
refused (and why).
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from forebay.core.snapshot import Snapshot

RejectCode: TypeAlias = Literal[
    "queue_full",
    "user_queue_full",
    "queue_disabled",
    "stream_not_queued",
    "deadline_unreachable",
    "model_not_found",
    "route_not_supported",
    "model_loading",
    "no_node",
    "rate_limited",
    "shutting_down",
]
"""Why a request is refused before it waits; the codes of the HTTP errors."""

NO_ROOM: tuple[RejectCode, ...] = (
    "queue_full", "user_queue_full", "queue_disabled", "stream_not_queued",
)  # fmt: skip
"""Refusals that say no more than that everything is taken now."""

RETURNABLE: tuple[RejectCode, ...] = ("queue_full", "user_queue_full")
"""Refusals whose arrival number is kept."""

ExpireCode: TypeAlias = Literal["queue_timeout", "no_node", "model_loading"]

WaitReason: TypeAlias = Literal[
    "busy", "turn", "offline", "loading", "starting", "rate", "key", "better_node"
]
"""Why a request waits: `busy`, every slot that could serve it is taken; `turn`, a slot is free, but
held for a model swap or for those before it; `offline`, no node that serves it is up; `loading`,
none is up, but one is loading; `starting`, a node that may serve it has never answered yet; `rate`,
its key is over its rate; `key`, its key's `max_running` is used up; `better_node`, a slot is
free, but a busy node is expected to end it sooner."""

WhyBetter: TypeAlias = Literal["memory", "prompt", "speed"]
"""Why a node is worth waiting for: most of what is gained, because its model is in memory there,
because its prompt is cached there, or because the node is faster."""


class RateStatus(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a key stands against its limits, what has just started included; 0 is no limit.

    Of the minute's and the day's limit on tokens, the one that leaves less.
    """

    limit_requests: int = 0
    remaining_requests: int = 0
    reset_requests_s: float = 0.0
    """When nothing would be used any more, if nothing more started."""
    limit_tokens: int = 0
    remaining_tokens: int = 0
    reset_tokens_s: float = 0.0


class Route(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Run it on that node now. A lease is held until `Finished`, `Returned` or `Cancelled`."""

    id: str
    node: str
    queued: bool = False
    """Whether it waited at all."""
    waited_s: float = 0.0
    """All the time it has spent waiting so far, over all its attempts."""
    attempt: int = 1
    predicted_s: float | None = None
    """The p50 that was promised on arrival; compare it with `waited_s` to publish the error."""
    model: str = ""
    """Which model it runs with, where the arrival had fallbacks to choose from."""
    seq: int = 0
    """Its place in the order of arrival, for `Resumed`."""
    cached_tokens: int = 0
    """How much of its prompt the node has probably computed before."""
    rate: RateStatus | None = None
    """Of its key, where that has limits."""


class Wait(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Hold it: its turn will come. Numbers are None while nothing has been measured."""

    id: str
    reason: WaitReason
    position: int
    """1 + the entries of its lane that would run before it if nothing more arrived."""
    estimate_s: float | None = None
    """waiting ahead x mean service / slots: what `X-Estimated-Wait` says."""
    p50_s: float | None = None
    p90_s: float | None = None
    seq: int = 0
    """Its place in the order of arrival, for `Resumed`."""
    rate: RateStatus | None = None
    """Of its key, where that has limits."""


class Reject(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Refuse it, or answer a waiter that lost its place (displaced, revoked, shutdown)."""

    id: str
    code: str
    """A `RejectCode`, or the code given with `Revoked`."""
    reasons: tuple[str, ...] = ()
    retry_after_s: float | None = None
    """When trying again makes sense; None while nothing has been measured."""
    estimate_s: float | None = None
    rate: RateStatus | None = None
    """Of its key, where that was over its rate."""


class Expire(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """It waited as long as it may: `queue_timeout`, or why nothing could serve it."""

    id: str
    code: ExpireCode
    waited_s: float
    retry_after_s: float | None = None


class Abort(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stop a running one and answer with `code`; the lease ends with the `Cancelled` you post."""

    id: str
    code: str


class Describe(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to `Inspected`."""

    id: str
    state: str
    waited_s: float
    attempt: int
    reason: WaitReason | None = None
    node: str | None = None
    position: int | None = None
    estimate_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    waits_for: str = ""
    """The node that it waits for, though another is free; "" for any."""
    better_by: WhyBetter | None = None
    """Why that one, where it waits for one."""
    gain_s: float = 0.0
    """How much sooner it is expected to end there."""
    times_as_fast: float = 0.0
    """How fast that node is, against what is free."""
    hold_s_left: float = 0.0
    """How long it waits for that node at most."""
    cached_tokens: int = 0
    """How much of its prompt is cached there, or was where it runs."""
    prompt_tokens: int = 0


class Lease(Struct, frozen=True, gc=False):
    """One slot that a ticket holds."""

    id: str
    node: str


class Audit(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to `Audited`: the leases that the caller holds, and how many tickets."""

    leases: tuple[Lease, ...] = ()
    tickets: int = 0
    """What is unfinished, with or without a lease."""


class SlotsChanged(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A node has another number of slots now, as found by how it answers; nothing needs an answer.

    Whoever shows or logs nodes tells it; the core uses the number already.
    """

    name: str
    slots: int
    reason: str
    """Why, in words for people."""
    is_trial: bool = False
    """It is only tried for a round, or comes back from that: worth a line at level DEBUG only."""


Decision: TypeAlias = Route | Wait | Reject
"""The first answer to an `Arrived`."""
Action: TypeAlias = (
    Route | Wait | Reject | Expire | Abort | SlotsChanged | Describe | Snapshot | Audit
)
"""Everything that `Scheduler.handle` may return."""
