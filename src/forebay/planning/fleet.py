"""The nodes of a replay: those of the log, or as typed, `3xgpu:8,llama3.1:8b:2`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.quantities import BadPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.planning.fitting import Fits
    from forebay.planning.traffic import Traffic

NODES_MAX = 1000
SLOTS_MAX = 10_000
OVERLAP_S = 0.005
"""Times are logged in milliseconds: an end and the next start may seem to overlap by some."""
_GROUP = re.compile(r"(?:(\d{1,4})[xX])?(\S+):(\d{1,5})")


class PlannedNode(Struct, frozen=True):
    """One node of a replay."""

    name: str
    slots: int
    models: tuple[str, ...]
    slowness: float = 1.0


def parse_nodes(text: str, traffic: Traffic, fits: Fits) -> list[PlannedNode]:
    """Read `COUNTxNAME:SLOTS[,...]`; raises BadPlan.

    NAME is a node of the log, whose speed and models are taken; or a model, and the node has that
    one alone; or any word, and the node has every model.
    """
    nodes: list[PlannedNode] = []
    served = served_models(traffic)
    for part in text.split(","):
        found = _GROUP.fullmatch(part.strip())
        if found is None:
            raise BadPlan(
                f"--nodes: {part!r} is no group of nodes. Write COUNTxNAME:SLOTS: 3xgpu:8"
            )
        count, name, slots = int(found[1] or 1), found[2], int(found[3])
        if not (1 <= count <= NODES_MAX and 1 <= slots <= SLOTS_MAX):
            raise BadPlan(
                f"--nodes: {part}: from 1 to {NODES_MAX:,} nodes, from 1 to {SLOTS_MAX:,} slots."
            )
        models = served.get(name) or ((name,) if name in traffic.models else traffic.models)
        slowness = fits.slowness.get(name, 1.0)
        names = [name] if count == 1 else [f"{name}-{number + 1}" for number in range(count)]
        nodes += (PlannedNode(one, slots, models, slowness) for one in names)
    if len(nodes) > NODES_MAX or len({node.name for node in nodes}) < len(nodes):
        raise BadPlan(f"--nodes: at most {NODES_MAX:,} nodes, each name once.")
    return nodes


def recorded_nodes(traffic: Traffic, fits: Fits, slots: Mapping[str, int]) -> list[PlannedNode]:
    """Return the nodes of a log; `slots` are those that the settings name, the others are seen."""
    if traffic.source != "access log":
        raise BadPlan("a trace says nothing of nodes. Name them: --nodes 2xgpu:8")
    seen = most_at_once(traffic)
    return [
        PlannedNode(name, slots.get(name) or seen[name], models, fits.slowness.get(name, 1.0))
        for name, models in served_models(traffic).items()
    ]


def served_models(traffic: Traffic) -> dict[str, tuple[str, ...]]:
    """Return what each node of a log was seen to run."""
    found: dict[str, dict[str, None]] = {}
    for request in traffic.requests:
        if request.node:
            found.setdefault(request.node, {})[request.model] = None
    return {node: tuple(models) for node, models in sorted(found.items())}


def most_at_once(traffic: Traffic) -> dict[str, int]:
    """Return the most requests that each node was seen to run at once.

    That is its slots if it was ever full; of a node that never was, it is less.
    """
    changes: dict[str, list[tuple[float, int]]] = {}
    for request in traffic.requests:
        if request.run_s > OVERLAP_S:
            started_s = request.at_s + request.waited_s + OVERLAP_S
            ended_s = started_s - OVERLAP_S + request.run_s
            changes.setdefault(request.node, []).extend(((started_s, 1), (ended_s, -1)))
    most = dict.fromkeys(served_models(traffic), 1)
    for node, seen in changes.items():
        running = 0
        for _, change in sorted(seen):
            running += change
            most[node] = max(most[node], running)
    return most
