"""When a node may change the model in its memory.

**Theory.** Loading a model takes S seconds in which nothing is served, so serving one model until
nobody wants it (exhaustive polling) swaps least, but lets a busy model keep the others out for
ever. The bounded rule: stay with the models in memory, but swap for a cold queue that has gone
unserved for longer than max(W, 2*M*S / (1 - rho)), M the models wanted here and rho the measured
load (at most 0.9), once the model that must go has served for 4*S. Nobody waiting for a model in
memory: swap at once. The rule orders queues inside one class; a higher class swaps too, after at
most 4*S of residence, and meanwhile lower classes may use the model that is there. Jobs never put
a model out before its 4*S either, even if nobody waits for it: its users may only be thinking.

**Bound.** For rho < 1 a cold queue's head waits at most that threshold + the drain of what runs
+ M*(S + 4*S): every other overdue model may go first, once, for its residence.

A swap needs the outgoing model idle (work that runs is never killed), so the node drains: its
`swap_target` keeps newcomers of other models out, except, in strict order, those of a higher class
whose model is still there. (In weighted order it is the class's turn, and it gets the node.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.fairness import WaitQueue
    from forebay.core.nodes import Node

RESIDENCE_LOADS = 4.0
"""How many load times a model may serve before it can be forced out."""
LOAD_MAX = 0.9
"""rho is capped here: above it the threshold would grow without bound."""


def threshold_s(node: Node, models: int, swap_wait_s: float) -> float:
    """Return how long a cold queue yields to the models in memory."""
    idle = 1.0 - min(LOAD_MAX, node.load())
    return max(swap_wait_s, 2.0 * models * node.load_s / idle)


def residence_ends_s(node: Node, loaded: dict[str, float]) -> float:
    """Return from when on the model that would go may be forced out."""
    return loaded[node.victim(loaded)] + RESIDENCE_LOADS * node.load_s


def has_room(node: Node) -> bool:
    """Say whether a model can be loaded without another one leaving first."""
    return node.loaded is None or len(node.loaded) < node.loaded_max


def may_load(node: Node) -> bool:
    """Say whether a cold model can be loaded now: there is room, or an idle model to put out."""
    if node.loaded is None or has_room(node):
        return True
    return node.victim(node.loaded) not in node.leases.values()


def choose(
    node: Node, queues: list[WaitQueue], warm_below: bool, now_s: float, swap_wait_s: float
) -> tuple[list[WaitQueue], float | None]:
    """Return the queues of one class that may run on the node now, and when to look again.

    `queues` are those with something for this node; `warm_below` says whether the models in memory
    have a claim to their residence: a lower class waits for one of them, or `queues` are jobs.
    """
    loaded = node.loaded
    if loaded is None or has_room(node):
        return queues, None
    cold = [queue for queue in queues if queue.lane.model not in loaded]
    if not cold:
        return queues, None
    warm = [queue for queue in queues if queue.lane.model in loaded]
    oldest = min(cold, key=lambda queue: queue.unserved_since_s)
    residence_s = residence_ends_s(node, loaded)
    if warm:
        models = len({queue.lane.model for queue in queues} | loaded.keys())
        due_s = oldest.unserved_since_s + threshold_s(node, models, swap_wait_s)
        due_s = max(due_s, residence_s)
        return (warm, due_s) if now_s < due_s else ([oldest], None)
    if warm_below and now_s < residence_s:
        return [], residence_s
    return [oldest], None
