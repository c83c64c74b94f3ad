"""Pools of slots, which some models have for themselves on a node, shown as a part of that node.

To the core each is a node of its own (`forebay.core.pools`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core.pools import POOL_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core import Lease, NodeView


def with_pools(views: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes with the slots and the requests of their pools.

    >>> from forebay.core import NodeView
    >>> gpu = NodeView("gpu1", "online", 2, 1, 0.0, ("llama",), None)
    >>> pool = NodeView("gpu1#bge-*", "online", 8, 3, 0.0, ("bge-m3",), None)
    >>> (whole,) = with_pools([gpu, pool])
    >>> whole.slots, whole.in_flight, whole.models, whole.slots_reason
    (10, 4, ('llama', 'bge-m3'), '8 of them for bge-* alone')
    """
    nodes: dict[str, NodeView] = {}
    pools: list[NodeView] = []
    for view in views:
        if POOL_MARK in view.name:
            pools.append(view)
        else:
            nodes[view.name] = view
    for pool in pools:
        name, _, pattern = pool.name.partition(POOL_MARK)
        node = nodes.get(name)
        if node is not None:
            said = f"{pool.slots} of them for {pattern} alone"
            nodes[name] = replace(
                node,
                slots=node.slots + pool.slots,
                in_flight=node.in_flight + pool.in_flight,
                models=node.models + pool.models,
                slots_reason=f"{node.slots_reason}; {said}" if node.slots_reason else said,
            )
    return tuple(nodes.values())


def lease_of_node(lease: Lease) -> Lease:
    """Return a lease on a slot of a pool as one on its node."""
    return replace(lease, node=node_of(lease.node))


def node_of(name: str) -> str:
    """Return the node of which the core knows slots by a name."""
    return name.partition(POOL_MARK)[0]
