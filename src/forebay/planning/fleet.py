"""The nodes of a replay: those of the log, or as typed, `3xgpu:8,llama3.1:8b:2`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.quantities import BadPlan
from forebay.settings.section import PLAIN_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.planning.fitting import Fits
    from forebay.planning.traffic import Traffic

NODES_MAX = 1000
SLOTS_MAX = 10_000
LASTING = 0.01
"""Share of the time that a node runs anything; what lasts shorter may be an error of the clocks."""
_GROUP = re.compile(r"(?:(\d{1,99})[xX])?(\S+):(\d{1,99})")


class PlannedNode(Struct, frozen=True):
    """One node of a replay."""

    name: str
    slots: int
    models: tuple[str, ...]
    slowness: float = 1.0


def parse_nodes(text: str, traffic: Traffic, fits: Fits) -> list[PlannedNode]:
    """Read `COUNTxNAME:SLOTS[,...]`; raises BadPlan.

    NAME is a node of the log, whose speed and models are taken; or a model, and the node has that
    one alone; or any other name that a node may have, and the node has every model.
    """
    nodes: list[PlannedNode] = []
    served = served_models(traffic)
    for part in text.split(","):
        found = _GROUP.fullmatch(part.strip())
        if found is None:
            raise BadPlan(
                f"--nodes: {part!r} is not a group of nodes. Write COUNTxNAME:SLOTS: 3xgpu:8"
            )
        count, name, slots = int(found[1] or 1), found[2], int(found[3])
        if not (1 <= count <= NODES_MAX and 1 <= slots <= SLOTS_MAX):
            raise BadPlan(
                f"--nodes: {part}: from 1 to {NODES_MAX:,} nodes, from 1 to {SLOTS_MAX:,} slots."
            )
        is_seen = name in served or name in traffic.models
        if not is_seen and (name.startswith("-") or not PLAIN_NAME.fullmatch(name)):
            raise BadPlan(
                f"--nodes: {part}: {name!r} is no node and no model of --from, and no name for a "
                "node: letters, digits, '.', '_' and '-'. Write COUNTxNAME:SLOTS, separated by "
                "commas: 3xgpu:8"
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
        raise BadPlan("a trace does not contain nodes. Name them: --nodes 2xgpu:8")
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
    """Return the most requests that each node ran at once, for a hundredth of its busy time.

    That is its slots if it was ever full; of a node that never was, it is less.
    """
    changes: dict[str, list[tuple[float, int]]] = {}
    for request in traffic.requests:
        if request.run_s:
            started_s = request.at_s + request.waited_s
            ended_s = started_s + request.run_s
            changes.setdefault(request.node, []).extend(((started_s, 1), (ended_s, -1)))
    return {node: _level(sorted(changes[node])) for node in served_models(traffic)}


def _level(changes: list[tuple[float, int]]) -> int:
    """Return the highest count that lasted: clocks are read late now and then, on a busy machine.

    >>> _level([(0.0, 1), (1.0, 1), (5.001, 1), (5.002, -1), (8.0, -1), (9.0, -1)])
    2
    """
    lasted_s: dict[int, float] = {}
    running = 0
    for (at_s, change), (next_s, _) in pairwise(changes):
        running += change
        lasted_s[running] = lasted_s.get(running, 0.0) + next_s - at_s
    enough_s = LASTING * sum(lasted for count, lasted in lasted_s.items() if count > 0)
    seen_s = 0.0
    for count in sorted(lasted_s, reverse=True):
        seen_s += lasted_s[count]
        if seen_s >= enough_s:
            return max(1, count)
    return 1
