"""Nodes: as they are, as operators add them, and as guards report them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from forebay.api.fields import (
    Count,
    RequestBody,
    ResponseBody,
    Seconds,
    Share,
    one_of,
    unchecked,
)

NodeStateName: TypeAlias = Annotated[str, one_of("online", "loading", "offline", "draining")]
GuardState: TypeAlias = Literal["idle", "busy", "loading", "offline", "draining"]
"""`idle`: nothing runs; `busy`: something does; `loading`: the backend says so of itself;
`offline`: the backend does not answer; `draining`: the guard is about to stop."""

_Name: TypeAlias = Annotated[str, unchecked(pattern="^[A-Za-z0-9._-]{1,64}$")]
_Text: TypeAlias = Annotated[str, Meta(max_length=256)]
_Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]
_ModelSlots: TypeAlias = Annotated[
    dict[str, Annotated[int, unchecked(minimum=1, maximum=10_000)]], unchecked(maxProperties=16)
]


class NodeState(ResponseBody, frozen=True):
    """What both `/admin/nodes` and the live view say of a node."""

    name: str
    kind: str | None = None
    state: NodeStateName = ""
    slots: Count = 0
    slots_reason: str | None = None
    """Why it has as many, if found automatically; null where the settings say them."""
    in_flight: Count = 0
    models: list[str] = []
    loaded: list[str] | None = None
    """Models in memory; null where the node does not say."""
    failing: list[str] = []
    """Models that rest there for seconds: they failed."""
    gpu_load: Share | None = None
    speed: Seconds | None = None
    """How fast it served lately: 1.0 is usual for its models, higher is faster; null where it was
    not measured."""
    speed_measured_seconds_ago: Seconds | None = None
    kv_free_tokens: Count | None = None
    """Tokens that its key-value cache has room for, by its guard's last heartbeat; null where it
    does not say."""
    failures: dict[str, Count] = {}
    """Requests that failed there, by kind."""
    last_error: str | None = None
    guarded: bool = False
    """Whether a guard stands before it."""


class Node(NodeState, frozen=True):
    """One node, with all that is known of it."""

    url: str = ""
    version: str | None = None
    families: list[str] = []


class NodeList(ResponseBody, frozen=True):
    """The nodes."""

    data: list[Node]


class NodeDescription(RequestBody, forbid_unknown_fields=True):
    """A node to be added."""

    url: Annotated[str, unchecked(pattern="^https?://")]
    """http or https, a host and a port, no path."""
    name: _Name = ""
    """Its name in headers and metrics; left out, made of the host and the port."""
    kind: _Name = "auto"
    """Such as "ollama"; "auto" finds out."""
    slots: Annotated[int, unchecked(minimum=0, maximum=10_000)] | Literal["auto"] = "auto"
    """Requests at once; "auto" (or 0) asks the node, or finds out by trying."""
    model_slots: _ModelSlots = {}
    """Slots beside these that some models have for themselves, by pattern."""
    models: list[str] = []
    """Models it serves; empty asks the node."""
    connect_seconds: Annotated[float, unchecked(exclusiveMinimum=0)] = 5.0
    """Longest time for a connection to open."""


class Reloaded(ResponseBody, frozen=True):
    """What a reload did."""

    changed: list[str]
    """What has changed, in dotted names."""


class GuardHeartbeat(RequestBody, kw_only=True):
    """A heartbeat of a guard. Members that are not known here are left alone: it may be newer."""

    name: Annotated[str, Meta(max_length=64)]
    """The node's name."""
    url: _Text
    """Where the gateway reaches the guard: http or https, a host and a port."""
    instance: Annotated[str, Meta(min_length=8, max_length=64)]
    """Drawn anew whenever a guard starts."""
    state: GuardState
    """What the guard is doing."""
    slots: Annotated[int, Meta(ge=1, le=10_000)]
    """Requests that it lets through at once."""
    model_slots: _ModelSlots = {}
    """Slots beside these that some models have for themselves, by pattern."""
    in_flight: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """Requests that run there, for whichever gateway."""
    gpu_load: Annotated[float, Meta(ge=0, le=1)] | None = None
    vram_used_bytes: _Bytes | None = None
    vram_total_bytes: _Bytes | None = None
    kv_free_tokens: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    """Tokens that its key-value cache has room for; null where it does not say."""
    kind: _Text = ""
    """The kind of the backend, such as "ollama"."""
    version: _Text = ""
    """The backend's own version."""


class GuardHeard(ResponseBody, frozen=True):
    """What a heartbeat answers."""

    name: str
    state: NodeStateName
    heartbeat_seconds: Seconds
    """How often to send one."""
    lost_after_seconds: Seconds
    """How long after the last one the node is out."""
