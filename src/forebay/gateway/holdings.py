"""What one gateway holds now: slots, connections, bytes and tasks; and whether the sums agree.

Each of these is taken for a request or a client and given back when that ends, so an idle gateway
holds no lease and no body, and everything else is as it was before. `/metrics` shows them, and
`forebay serve --self-check` compares them with each other once a second.
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
    from forebay.wire.server import Server


class Holdings(Struct, frozen=True):
    """One count of everything."""

    leases: int = 0
    orphaned: int = 0
    """Since the start."""
    client_connections: int = 0
    node_connections: int = 0
    body_bytes: int = 0
    """Of requests whose answer has not begun."""
    tasks: int = 0


class HoldingsAudit:
    """Counts what the parts of a gateway hold, and compares it."""

    server: Server
    """Set once there is one: it needs the routes, and they need this."""

    def __init__(
        self, relay: Relay, nodes: Nodes, watchdog: Watchdog, membership: Membership
    ) -> None:
        self._relay = relay
        self._nodes = nodes
        self._watchdog = watchdog
        self._membership = membership
        self._ceilings: dict[str, int] = {}  # by node: what may have been running at the last look

    def count(self) -> Holdings:
        """Count now."""
        audit = self._relay.audit()
        return Holdings(
            len(audit.leases) if audit is not None else 0,
            self._watchdog.orphaned,
            len(self.server.connections),
            self._nodes.connections(),
            self.server.budget.in_memory_bytes,
            len(asyncio.all_tasks()),
        )

    def faults(self, audit: Audit, orphans: Collection[Orphan]) -> list[str]:
        """Say what cannot be, in words; nothing where all is well."""
        relay, server = self._relay, self.server
        held = [connection.charge.held_bytes for connection in server.connections]
        in_use = connections_in_use(relay.exchanges)
        found = [
            *map(str, orphans),
            *ticket_faults(
                audit, len(relay.exchanges) - len(relay.expired), len(relay.reservations)
            ),
            *byte_faults(server.budget.used_bytes, held),
            *connection_faults(self._nodes.connections(), in_use),
        ]
        if self._membership.fleet is None:  # else others' requests run on these nodes, too
            relay.observe(lambda seen: found.extend(self._slot_faults(seen.nodes)))
        return found

    def _slot_faults(self, nodes: Iterable[NodeView]) -> list[str]:
        told = {backend.name: backend.told.slots for backend in self._nodes}
        found, self._ceilings = slot_faults(nodes, told, self._ceilings)
        return found


def ticket_faults(audit: Audit, exchanges: int, reservations: int) -> list[str]:
    """Everything unfinished in the core is unfinished in the relay, and the other way round."""
    if audit.tickets == exchanges + reservations:
        return []
    return [
        f"the core has {audit.tickets} tickets, the relay {exchanges} exchanges "
        f"and {reservations} reservations"
    ]


def byte_faults(counted: int, held: Iterable[int]) -> list[str]:
    """The bytes of bodies that were counted are those that somebody holds."""
    held_bytes = sum(held)
    if counted == held_bytes:
        return []
    return [f"{counted} bytes of bodies are counted, {held_bytes} are held"]


def connection_faults(opened: int, in_use: int) -> list[str]:
    """Nobody uses a connection to a node that is not open."""
    if opened >= in_use:
        return []
    return [f"{opened} connections to nodes are open, {in_use} are in use"]


def slot_faults(
    nodes: Iterable[NodeView], told: Mapping[str, int], ceilings: Mapping[str, int]
) -> tuple[list[str], dict[str, int]]:
    """No node runs more than its slots, unless it did before they became fewer.

    `told` is what each node says it has: a node that was busy rests with fewer, for a while.
    Returns the faults, and what may be running at the next look.
    """
    found: list[str] = []
    after: dict[str, int] = {}
    for node in nodes:
        slots = max(node.slots, told.get(node.name, 0))
        if node.in_flight > max(slots, ceilings.get(node.name, 0)):
            found.append(f"{node.in_flight} requests run on {node.name}, which has {slots} slots")
        after[node.name] = max(slots, node.in_flight)
    return found, after
