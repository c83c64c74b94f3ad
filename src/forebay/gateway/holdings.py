"""What one gateway holds now (slots, connections, bytes, tasks), and whether the counts agree.

Each is acquired for a request or a client and released at its end, so an idle gateway holds no
lease and no body. `/metrics` shows them; `forebay serve --self-check` compares them once a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.relay.watchdog import connections_in_use

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from forebay.core import Audit, NodeView
    from forebay.gateway.fleet.membership import Membership
    from forebay.nodes.registry import Nodes
    from forebay.relay.relay import Relay
    from forebay.relay.watchdog import Orphan, Watchdog
    from forebay.wire.budget import Budget
    from forebay.wire.connection import ServerConnection


class Holdings(Struct, frozen=True):
    """The counts at one moment."""

    leases: int = 0
    orphaned: int = 0
    """Since the start."""
    client_connections: int = 0
    node_connections: int = 0
    body_bytes: int = 0
    """Of requests whose response has not begun."""
    tasks: int = 0


class HoldingsAudit:
    """Counts what the parts of a gateway hold, and compares it."""

    def __init__(
        self,
        relay: Relay,
        nodes: Nodes,
        watchdog: Watchdog,
        membership: Membership,
        connections: Collection[ServerConnection],
        bodies: Budget,
    ) -> None:
        self._connections = connections
        self._bodies = bodies
        self._relay = relay
        self._nodes = nodes
        self._watchdog = watchdog
        self._membership = membership
        self._ceilings: dict[str, int] = {}  # by node: what could run at the last check

    def count(self) -> Holdings:
        audit = self._relay.audit()
        return Holdings(
            len(audit.leases) if audit is not None else 0,
            self._watchdog.orphaned,
            len(self._connections),
            self._nodes.connections(),
            self._bodies.in_memory_bytes,
            len(asyncio.all_tasks()),
        )

    def faults(self, audit: Audit, orphans: Collection[Orphan]) -> list[str]:
        """Return the inconsistencies in words; an empty list where all is well."""
        relay = self._relay
        held = [connection.charge.held_bytes for connection in self._connections]
        in_use = connections_in_use(relay.exchanges)
        found = [
            *map(str, orphans),
            *ticket_faults(
                audit, len(relay.exchanges) - len(relay.expired), len(relay.reservations)
            ),
            *byte_faults(self._bodies.used_bytes, held),
            *connection_faults(self._nodes.connections(), in_use),
        ]
        if self._membership.fleet is None:  # else others' requests run on these nodes, too
            relay.observe(lambda seen: found.extend(self._slot_faults(seen.nodes)))
        return found

    def _slot_faults(self, nodes: Iterable[NodeView]) -> list[str]:
        told = {}
        for backend in self._nodes:  # a number that is found by trying changes between two looks
            told[backend.name], backend.slots_most = backend.slots_most, backend.told.slots
        found, self._ceilings = slot_faults(nodes, told, self._ceilings)
        return found


def ticket_faults(audit: Audit, exchanges: int, reservations: int) -> list[str]:
    """Core and relay have the same number of unfinished requests."""
    if audit.tickets == exchanges + reservations:
        return []
    return [
        f"the core has {audit.tickets} tickets, the relay {exchanges} exchanges "
        f"and {reservations} reservations"
    ]


def byte_faults(counted: int, held: Iterable[int]) -> list[str]:
    """The budget counts the bytes that connections hold."""
    held_bytes = sum(held)
    if counted == held_bytes:
        return []
    return [f"{counted} bytes of bodies are counted, {held_bytes} are held"]


def connection_faults(opened: int, in_use: int) -> list[str]:
    """No more connections to nodes are used than are open."""
    if opened >= in_use:
        return []
    return [f"{opened} connections to nodes are open, {in_use} are in use"]


def slot_faults(
    nodes: Iterable[NodeView], told: Mapping[str, int], ceilings: Mapping[str, int]
) -> tuple[list[str], dict[str, int]]:
    """No node runs more requests than it has slots, unless it did before they became fewer.

    `told` is the most that each node has reported since the last check: one that was busy has
    fewer slots for a while. Returns the faults, and how many requests may run on each node at the
    next check.
    """
    found: list[str] = []
    after: dict[str, int] = {}
    for node in nodes:
        slots = max(node.slots, told.get(node.name, 0))
        if node.in_flight > max(slots, ceilings.get(node.name, 0)):
            found.append(f"{node.in_flight} requests run on {node.name}, which has {slots} slots")
        after[node.name] = max(slots, node.in_flight)
    return found, after
