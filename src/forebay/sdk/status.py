"""What a gateway says about itself, for our own programs; not exported, as it may grow and change.

Fields that an older or newer gateway leaves out have a default; what is unknown is passed over.
"""

from __future__ import annotations

from msgspec import Struct

from forebay.sdk.values import QueueState


class ModelEntry(Struct, frozen=True):
    """A model that can be asked."""

    id: str


class ModelList(Struct, frozen=True):
    """`GET /v1/models`."""

    data: list[ModelEntry]


class NodeStatus(Struct, frozen=True):
    """One node."""

    name: str
    url: str = ""
    kind: str | None = None
    state: str = ""
    slots: int = 0
    in_flight: int = 0
    models: list[str] = []
    last_error: str | None = None
    guarded: bool = False
    """Whether a guard stands before it."""


class NodeList(Struct, frozen=True):
    """`GET /admin/nodes`."""

    data: list[NodeStatus]


class ReplicaStatus(Struct, frozen=True):
    """One gateway of those that share a queue."""

    name: str
    state: str = ""
    version: str = ""
    waiting: int = 0
    running: int = 0
    lent: int = 0
    heard_seconds: float | None = None
    same_settings: bool = True
    address: str = ""


class FleetStatus(Struct, frozen=True):
    """The gateways that share a queue, as the one that is asked knows them."""

    mode: str = ""
    epoch: int = 0
    me: str = ""
    replicas: list[ReplicaStatus] = []
    counted_seconds_ago: float | None = None
    """None where no leader has told its figures yet."""


class QueueStatus(QueueState, frozen=True):
    """`GET /v1/queue`, the fleet included."""

    fleet: FleetStatus | None = None
    """None where the gateway has its queue for itself."""
