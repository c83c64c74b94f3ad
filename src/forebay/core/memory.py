"""The models in a node's memory: since when, which makes room, and how long a load takes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from forebay.core.records import Load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.events import NodeChanged
    from forebay.core.records import Entry, Lane, Node

LOAD_S: Final = 10.0
"""What a load is taken to take while nobody has told or measured it."""


def is_warm(node: Node, model: str) -> bool:
    """Say whether a model is in memory; a node that does not say which are has all."""
    return node.loaded is None or model in node.loaded


def load_left_s(node: Node, model: str, now_s: float) -> float:
    """Return how long it takes until a model can serve, were it loaded now where it is not yet."""
    if node.loaded is None:
        return 0.0
    ready_s = node.loaded.get(model)
    if ready_s is None:
        return node.load_s or LOAD_S
    return ready_s - now_s if ready_s > now_s else 0.0


def has_load(node: Node, entry: Entry) -> bool:
    """Say whether there is a load in the run of an entry, its own or another's."""
    load = node.loads.get(entry.queue.lane.model)
    return entry.joins_load or (load is not None and load.entry is entry)


def lanes_of(node: Node, model: str) -> Iterable[Lane]:
    """Return the lanes of a model, one for each family that the node speaks."""
    return node.lanes[model].values() if model in node.lanes else ()


def note_dispatch(node: Node, entry: Entry, model: str, now_s: float) -> float:
    """Keep track of the models in memory; return from when on this one can serve."""
    loaded = node.loaded
    if loaded is None:
        return now_s
    if model in loaded:
        if model == node.swap_victim:
            node.swap_target = None  # someone more urgent wants it still
        load = node.loads.get(model)
        if load is not None and load.entry is entry:
            del node.loads[model]  # it came back, and measures no load any more
        elif load is not None and not load.is_over:
            entry.joins_load = True
    else:
        if len(loaded) >= node.loaded_max:
            _put_out(node, victim(node), now_s)
        node.swap_target = None
        node.loads[model] = Load(entry, now_s)
        loaded[model] = now_s + node.load_s
        _compare_models(node)
    return max(now_s, loaded[model])


def _compare_models(node: Node) -> None:
    node.holds_all = all(is_warm(node, model) for model in node.models)
    if node.holds_all:
        node.swap_target = None


def _put_out(node: Node, model: str, now_s: float) -> None:
    if node.loaded is not None:
        del node.loaded[model]
    node.left_at_s[model] = now_s
    node.loads.pop(model, None)


def victim(node: Node) -> str:
    """Return the model that makes room: the least wanted, an idle one, the oldest.

    One must be in memory. Once decided, it stays the same while the node drains.
    """
    loaded = node.loaded or {}
    if node.swap_target is not None and node.swap_victim in loaded:
        return node.swap_victim
    if len(loaded) == 1:
        return next(iter(loaded))
    busy = set(node.leases.values())
    wanted = {one: sum(lane.waiting for lane in lanes_of(node, one)) for one in loaded}
    return min(loaded, key=lambda one: (wanted[one], one in busy, loaded[one]))


def running_there(node: Node, model: str) -> list[Entry]:
    """Return what runs here with a model."""
    entries = (one for lane in lanes_of(node, model) for one in lane.running.values())
    return [entry for entry in entries if entry.node is node]


def drain_s(node: Node, model: str, now_s: float) -> float:
    """Return how long a model may take to become idle, each run being of median length."""
    typical_s = service_s(node, model, 0.5) or 0.0
    ends_s = (entry.since_s + typical_s for entry in running_there(node, model))
    return max(0.0, max(ends_s, default=now_s) - now_s)


def service_s(node: Node, model: str, share: float) -> float | None:
    """Return what that share of a model's services stay below; None while unmeasured."""
    found = (lane.times.quantile_s(share) for lane in lanes_of(node, model))
    return max((one for one in found if one is not None), default=None)


def usual_service_s(node: Node, model: str) -> float:
    """Return a model's median service; of one unmeasured, the longest of the others', or 0."""
    own_s = service_s(node, model, 0.5)
    if own_s is not None:
        return own_s
    return max((service_s(node, other, 0.5) or 0.0 for other in node.lanes), default=0.0)


def end_run(node: Node, entry: Entry, service_s: float, now_s: float) -> float:
    """Take note of a run that ended well; return its service time, below 0 if nobody knows."""
    lane = entry.queue.lane
    load = node.loads.get(lane.model)
    if load is not None:
        load.is_over = True
        if node.loaded is not None and not node.load_is_told:
            node.loaded[lane.model] = min(node.loaded[lane.model], now_s)
        if load.entry is entry:
            del node.loads[lane.model]
            return _measure_load(node, lane, now_s - load.began_s)
    if entry.joins_load and not node.load_is_told:
        return -1.0  # nobody knows for how long it waited for the load
    return service_s


def _measure_load(node: Node, lane: Lane, took_s: float) -> float:
    """Learn from a run that began with a load; return its service time, below 0 if nobody knows.

    Where the node does not say how long a load takes, it is what the run took beyond a usual
    service; and once that is known, the rest of such a run tells the service time of a model
    that never runs without a load before it.
    """
    if node.load_is_told:
        return took_s - node.load_s
    before_s = node.load_s if usual_service_s(node, lane.model) > 0.0 else 0.0
    node.loads_measured.append((lane.model, took_s))
    learn_load(node)
    return -1.0 if before_s == 0.0 or lane.times.mean_s() is not None else took_s - before_s


def learn_load(node: Node) -> None:
    """Work out how long a load takes, by what usual services take as far as that is known.

    While no service is measured, all that a run took is taken for its load: too much rather
    than too little. Without a residence no run would begin with its model in memory, and none
    would ever be measured.
    """
    if node.load_is_told or not node.loads_measured:
        return
    beyond_s = [
        max(0.0, took_s - usual_service_s(node, model)) for model, took_s in node.loads_measured
    ]
    node.load_s = sorted(beyond_s)[(len(beyond_s) - 1) // 2]


def update_models(node: Node, event: NodeChanged, now_s: float) -> None:
    """Take over what is reported of the models in memory."""
    node.loaded_max = max(1, event.loaded_max)
    node.load_is_told = event.load_s > 0.0
    if node.load_is_told:
        node.load_s = event.load_s
    if event.loaded is None:
        node.loaded = None
        _compare_models(node)
        return
    # A report may be older than our last dispatch: what runs here is loaded or loading, and
    # what was reported beside it has gone where there is no room for both.
    node.loaded_max = max(node.loaded_max, len(event.loaded))
    present = dict.fromkeys((*node.leases.values(), *event.loaded))
    before = node.loaded or {}
    room = max(node.loaded_max, len(set(node.leases.values())))
    node.loaded = {model: before.get(model, now_s) for model in islice(present, room)}
    gone = dict.fromkeys((model for model in before if model not in node.loaded), now_s)
    left_s = {**node.left_at_s, **gone}
    node.left_at_s = {model: at_s for model, at_s in left_s.items() if model in event.models}
    _compare_models(node)
