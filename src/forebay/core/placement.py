"""Which node an entry should run on.

Among the nodes that are open to it: one with the model in memory, then the one that served the
same affinity last, then the one whose cache saves most of its prompt, then the lowest
`0.3 * gpu_load + 0.7 * in_flight / slots`, then the least recently used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import prefixes, swaps
from forebay.core.charging import expected_tokens
from forebay.core.memory import is_warm
from forebay.core.nodes import fits, score

if TYPE_CHECKING:
    from typing import TypeAlias

    from forebay.core.cluster import Cluster
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Lane, Node, WaitQueue

    Preference: TypeAlias = tuple[bool, bool, float, float, int]


def choose(
    cluster: Cluster,
    queue: WaitQueue,
    arrival: Arrived,
    excluded: frozenset[str],
    open_nodes: dict[str, Node] | None = None,
) -> Node | None:
    """Return the best open node for an entry of that queue that its owner reaches, or None.

    `open_nodes` asks what it would be were others open.
    """
    if open_nodes is None:
        open_nodes = cluster.open
    node = _best_open(cluster, queue, arrival, excluded, open_nodes)
    if cluster.reaches is not None:
        while node is not None and not cluster.reaches(arrival.id, node.name):
            excluded |= {node.name}
            node = _best_open(cluster, queue, arrival, excluded, open_nodes)
    return node


def _best_open(
    cluster: Cluster,
    queue: WaitQueue,
    arrival: Arrived,
    excluded: frozenset[str],
    open_nodes: dict[str, Node],
) -> Node | None:
    lane, options = queue.lane, cluster.options
    affinity, nodes = arrival.affinity, lane.nodes
    best: Node | None = None
    best_key: Preference = (True, True, 0.0, 0.0, 0)
    prefix, tokens = arrival.prefix, arrival.prefix_tokens
    by_prefix = bool(prefix) and len(nodes) > 1
    least, token_s, service_s = 0, 0.0, 0.0
    if by_prefix:
        least = _least_running(nodes, open_nodes)
        token_s, mean_s = lane.prefill.token_s(), lane.times.mean_s()
        service_s = prefixes.SERVICE_S if mean_s is None else mean_s
    favourite = cluster.favourite(affinity) if affinity else None
    for name in nodes if len(nodes) < len(open_nodes) else open_nodes:
        node = nodes.get(name)
        if node is None or name not in open_nodes or (excluded and name in excluded):
            continue
        if node.room is not None and not has_memory_for(node, lane, arrival, options):
            continue
        if not node.holds_all and not _may_start(node, lane.model, queue.rank, options):
            continue
        worth_s = 0.0
        if by_prefix:
            cached = node.prefixes.tokens_of(prefix, tokens)
            worth_s = prefixes.worth_s(
                cached, len(node.leases) - least, node.slots, token_s, service_s
            )
        warm = is_warm(node, lane.model)
        key = (not warm, name != favourite, -worth_s, score(node), node.used_at)
        if best is None or _is_less(key, best_key):
            best, best_key = node, key
    return best


def has_memory_for(node: Node, lane: Lane, arrival: Arrived, options: Options) -> bool:
    """Say whether a node that tells of its key-value cache has room for an arrival."""
    return fits(node, expected_tokens(lane, arrival, options))


def _may_start(node: Node, model: str, rank: int, options: Options) -> bool:
    """Say whether an entry may go straight to a node that swaps models.

    A drain keeps others out, but not a higher class whose model is still warm.
    A job that would put a model out must wait in a queue, where the swap rule holds it.
    """
    warm = is_warm(node, model)
    if node.swap_target is not None:
        return warm and (model != node.swap_victim or swaps.goes_before(node, rank, options))
    if warm:
        return True
    return swaps.has_room(node) if rank == len(options.priorities) else swaps.may_load(node)


def _is_less(one: Preference, other: Preference) -> bool:
    """Compare as `<` does, for which compiled code would make objects of both."""
    if one[0] != other[0]:
        return other[0]
    if one[1] != other[1]:
        return other[1]
    if one[2] != other[2]:
        return one[2] < other[2]
    return one[3] < other[3] or (one[3] == other[3] and one[4] < other[4])


def _least_running(nodes: dict[str, Node], open_nodes: dict[str, Node]) -> int:
    least = -1
    for name, node in nodes.items():
        if name in open_nodes and not 0 <= least <= len(node.leases):
            least = len(node.leases)
    return max(least, 0)
