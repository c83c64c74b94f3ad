"""The queue as a whole, the gateways that share it, and single requests in it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict

from forebay.api.fields import Always, Count, ResponseBody, Seconds, Sometimes, one_of

# -- the queue


class Replica(ResponseBody, frozen=True):
    """One gateway of those that share a queue."""

    name: str
    """Eight hexadecimal digits, the same after a restart."""
    state: Annotated[str, one_of("leading", "following", "lost")] = ""
    version: str = ""
    waiting: Count = 0
    running: Count = 0
    lent: Count = 0
    """Slots that it may use without asking."""
    heard_seconds: Seconds = 0.0
    """How long ago it was last heard of."""
    same_settings: bool = True
    """Whether its settings are those of the one that answers."""
    address: Sometimes[str] = None
    """Where the others reach it; for admins only."""


Mode: TypeAlias = Annotated[str, one_of("coordinated", "seeking", "alone", "cut_off")]


class Fleet(ResponseBody, frozen=True):
    """The gateways that share a queue, as the answering one knows them."""

    mode: Mode = ""
    """`coordinated`: a leader decides for all; `seeking`: there is none yet; `alone`: the store is
    out of reach; `cut_off`: for this gateway only."""
    epoch: Count = 0
    """How many leaders there have been."""
    me: str = ""
    """The name of the one that answers."""
    counted_seconds_ago: Seconds | None = None
    """How old the figures of the queue are: 0 when the leader has just told them, null when it
    never has."""
    replicas: list[Replica] = []


class Queue(ResponseBody, frozen=True):
    """The whole queue, in aggregates."""

    waiting: Count
    processing: Count
    """Live requests that run now."""
    max_size: Count
    average_wait_seconds: Seconds = 0.0
    """Over the last 100."""
    average_service_seconds: Seconds = 0.0
    """Over the last 100."""
    by_priority: dict[str, Count] = {}
    """Waiting, by class."""
    processing_jobs: Count = 0
    """Jobs that run now."""
    rejected_total: Count = 0
    """Refused because there was no room."""
    timeouts_total: Count = 0
    served_total: Count = 0
    fleet: Sometimes[Fleet] = None
    """The gateways that share this queue; absent where it is not shared."""


# -- one request

Reason: TypeAlias = Annotated[
    str,
    one_of("busy", "turn", "offline", "loading", "starting", "rate", "key", "better_node"),
]
RequestState: TypeAlias = Literal["waiting", "running", "ended"]


class EstimatedWait(ResponseBody, frozen=True):
    """How long it may take from now, in seconds; None while nothing has been measured."""

    p50: Seconds | None = None
    p90: Seconds | None = None


class BetterNode(ResponseBody, frozen=True):
    """A busy node that a request waits for, though another is free."""

    node: str
    why: Annotated[str, one_of("memory", "prompt", "speed")] = ""
    """What gains most: its model is in memory there, its prompt is cached there, or that node is
    faster."""
    seconds_gained: Seconds = 0.0
    """How much sooner it is expected to end there."""
    seconds_left: Seconds = 0.0
    """How long it waits for that node at most."""
    times_as_fast: Seconds = 0.0
    """That node, against what is free."""
    cached_tokens: Count = 0
    prompt_tokens: Count = 0


class CachedPrompt(ResponseBody, frozen=True):
    """What of a prompt a node has computed before."""

    node: str | None
    cached_tokens: Count
    prompt_tokens: Count
    message: str


class Moment(TypedDict):
    """Something that happened to a request."""

    seconds_ago: float
    event: str


class Ticket(ResponseBody, frozen=True):
    """Where one request stands, and why."""

    id: str
    state: str
    position: int | None = None
    """1 is next; null while it runs."""
    estimated_wait_seconds: EstimatedWait = EstimatedWait()
    waited_seconds: Seconds = 0.0
    reason: Always[str] = None
    """Why it waits, in words."""
    reason_code: Reason | None = None
    """The same for programs; null while it runs."""
    better_node: BetterNode | None = None
    """The busy node that it waits for, though another is free; null where it waits for none."""
    cache: CachedPrompt | None = None
    """What of its prompt a node has computed before: where it runs, or where it waits to run; null
    where nothing is known."""
    attempt: Count = 0
    timeline: tuple[Moment, ...] = ()


class Cancelled(ResponseBody, frozen=True):
    """What a cancellation answers."""

    id: str
    state: Literal["cancelled"] = "cancelled"


# -- the list of requests


class ListedRequest(ResponseBody, frozen=True):
    """One request of the list; None is what does not apply, or is not known."""

    id: str
    state: Annotated[str, one_of("waiting", "running", "ended")]
    outcome: str | None = None
    """`served`, `passed_through` (a 4xx or 5xx of the node), `cancelled`, or an error code; null
    until it has ended."""
    status: int | None = None
    """Of the answer; null until it has ended."""
    model: str = ""
    user: str = ""
    """Whom fairness counts it for."""
    priority: str = ""
    position: int | None = None
    """1 is next; null unless it waits."""
    estimated_wait_seconds: EstimatedWait | None = None
    """The wait still to come; null unless it waits."""
    waited_seconds: Seconds = 0.0
    node: str | None = None
    attempt: Count = 0
    """How often it has started."""
    reason: str | None = None
    """Why it waits, in words."""
    reason_code: str | None = None
    """The same for programs."""
    prompt_tokens: Count = 0
    """As the node says, else estimated."""
    output_limit: Count = 0
    """The caller's own; 0 where it gave none."""
    body_bytes: Count = 0
    arrived: float = 0.0
    """Unix time."""


class RequestList(ResponseBody, frozen=True):
    """Requests, the newest first."""

    data: tuple[ListedRequest, ...]
    has_more: bool = False
    incomplete: tuple[str, ...] = ()
    """Gateways of the fleet that did not answer: their requests are missing."""
