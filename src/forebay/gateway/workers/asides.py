"""Messages between the leader and one worker beside the queue: nodes, keys, figures, reloads.

All of it may be lost with a connection: whoever connects again is told everything anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from forebay.nodes.adapters.report import NodeReport
from forebay.records.keys import KeyTable
from forebay.records.usage import UsageCounts, UsageKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination.workers.store import WorkerStore

logger = logging.getLogger("forebay.gateway")


class NodeState(Struct, frozen=True):
    """One node as the leader knows it."""

    settings: dict[str, Any]
    result: NodeReport | str
    """Of the last probe: a report, or why there is none; "" before the first."""
    probes: int = 0
    """How many results there have been: the same number, the same result."""
    draining: bool = False
    guarded: bool = False
    heard_slots: int = 0
    """What its guard lets through, where it has one."""
    silent: bool = False
    """Whether that guard has not been heard of for too long."""


class NodeNews(Struct, frozen=True, tag=True):
    """Node states from the leader: of all nodes, or of those that changed."""

    nodes: tuple[NodeState, ...] = ()
    gone: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    """What is on its way: nodes that are sought, or guards."""
    whole: bool = False
    """Whether there are no nodes but these."""


class ProbeAsked(Struct, frozen=True, tag=True):
    """A worker asks the leader to probe a node that misbehaves."""

    node: str


class CountAsked(Struct, frozen=True, tag=True):
    """The leader asks what was counted, and says what it counted itself, for its successor."""

    number: int
    counted: dict[str, float]


class Counted(Struct, frozen=True, tag=True):
    """What a worker has counted since it started, and what it holds now; by sample."""

    number: int
    """Of the question."""
    counters: dict[str, float]
    gauges: dict[str, float]


class ReloadAsked(Struct, frozen=True, tag=True):
    """The leader has reloaded the settings; the others must, too."""


class KeyNews(Struct, frozen=True, tag=True):
    """Keys that were made at run time, from the leader."""

    table: KeyTable


class UsageNews(Struct, frozen=True, tag=True):
    """Usage and ended requests of a worker, for the leader, which has the database."""

    rows: list[tuple[UsageKey, UsageCounts]]
    requests: list[str] = []


Aside: TypeAlias = NodeNews | ProbeAsked | CountAsked | Counted | ReloadAsked | KeyNews | UsageNews

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Aside).decode


class Asides:
    """Sends and receives these messages; each kind has one handler."""

    def __init__(self, store: WorkerStore) -> None:
        self._store = store
        store.on_aside = self._receive
        self._takers: dict[type, Callable[[str, Any], None]] = {}

    def take(self, kind: type, taker: Callable[[str, Any], None]) -> None:
        """Have `taker` called with the sender and the message, for each of this kind."""
        self._takers[kind] = taker

    def send(self, message: Aside, member: str = "") -> bool:
        """Send to the leader; as the leader, to one worker or to all. False where nobody is."""
        return self._store.send_aside(_encode(message), member)

    def _receive(self, member: str, payload: bytes) -> None:
        message = _decode(payload)
        try:
            self._takers[type(message)](member, message)
        except Exception:  # a bug of ours must not cost the connection, and so the queue
            logger.exception(
                "handling a message from another worker failed", extra={"from": member}
            )
