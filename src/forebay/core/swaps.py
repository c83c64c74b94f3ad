"""When a node swaps the model in its memory, and for which queue.

**Theory.** Loading a model takes S seconds in which the node serves nobody. Serving one model until
nobody wants it (exhaustive polling) swaps least, but lets a busy model keep the others out for
ever; swapping for whoever came first spends the node on loading. The rule between the two:

1. *Share.* A model that others wait to replace serves `S * (1 / share - 1)` first, its residence:
   with a share of 1/10, loading takes a tenth of such a turn.
2. *Due.* A cold queue may replace it when its residence is over and the queue has waited for
   `swap_wait_s`; a class above all that wait for it, when the residence is over. Or at the queue's
3. *last call*, once the model has served for 1.5 S, whatever the share: what its head may still
   wait is no more than the 90th percentile of the model's service times, 2 s, and S + a median
   service for each model before it in turn. A head that comes too late then makes nobody leave.
4. *In turn.* By class, then the model that has been out of memory for longest, then age. Models
   that another node has in memory come after those that none has. When nobody waits for the model
   in memory, the next in turn replaces it at once.
5. *Jobs* replace a model only when nobody live waits on the node and its residence is over.

Of several models in memory the least wanted makes room.

**Bound.** The head of a cold queue waits at most `swap_wait_s + M * (S + residence + drain)`, M the
models wanted on the node: each other one may go first, once, for its residence.

**What no rule can do.** A turn of a cold model costs those who wait for the other 2S + its service,
so whoever has less time left than that cannot be served by any order; of M - 1 cold models that are
asked for at once the last waits for at least drain + (M - 2)(S + service).

A swap needs the outgoing model idle (work that runs is never killed), so the node drains: its
`swap_target` keeps newcomers of the outgoing model out, except those of a higher class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.core import memory
from forebay.core.fairness import next_for
from forebay.core.records import NEVER_S

if TYPE_CHECKING:
    from forebay.core.options import Options
    from forebay.core.records import Entry, Node, WaitQueue

LAST_CALL_LOADS: Final = 1.5
"""Half of a residence of 9 S would be too late: a third of those asked for are not served."""
LAST_CALL_SLACK_S: Final = 2.0
"""A service may last a little longer than nine tenths of the others did."""


class Rival(NamedTuple):
    """A queue whose model is not in memory, and its place in turn."""

    queue: WaitQueue
    place: int
    """Of its class among those that wait here, 0 first."""
    warm_elsewhere: bool
    left_s: float
    """When its model left the memory; 0 where it never was there."""
    before: int
    """How many models come before it in turn."""
    before_s: float
    """What those take: a load and a median service each."""


def has_room(node: Node) -> bool:
    """Say whether a model can be loaded without another one leaving first."""
    return node.loaded is None or len(node.loaded) < node.loaded_max


def may_load(node: Node) -> bool:
    """Say whether a cold model can be loaded now: there is room, or an idle model to put out."""
    return has_room(node) or memory.victim(node) not in node.leases.values()


def goes_before(node: Node, rank: int, options: Options) -> bool:
    """Say whether a class is above that for which a model leaves, and may still use it.

    In weighted order it is the turn of that class, and only jobs are below all others.
    """
    strict = options.class_order == "strict"
    return rank < node.swap_rank and (strict or node.swap_rank == len(options.priorities))


def may_use(node: Node, model: str, rank: int, options: Options) -> bool:
    """Say whether a model is in memory, and not about to leave for the sake of others."""
    if not memory.is_warm(node, model):
        return False
    leaves = node.swap_target is not None and model == node.swap_victim
    return not leaves or goes_before(node, rank, options)


class Resident(NamedTuple):
    """The model that would make room."""

    model: str
    callable_s: float
    """From when on it may leave for a last call."""
    ends_s: float
    """From when on it may leave for any other: its residence is over, or nobody waits for it."""
    drain_s: float
    """How long what runs with it will probably take."""


def resident(
    node: Node, classes: list[list[WaitQueue]], jobs: bool, now_s: float, options: Options
) -> Resident:
    """Return the model that would make room; its residence counts while someone waits for it.

    `classes` and `jobs` as for `next_swap`. Jobs leave it its residence in any case: its users may
    only be thinking.
    """
    model = memory.victim(node)
    drain_s = memory.drain_s(node, model, now_s)
    since_s = (node.loaded or {}).get(model, 0.0)  # or from when on it can serve
    if not jobs and not any(one.lane.model == model for queues in classes for one in queues):
        loads = model in node.leases.values()  # who wants it may join until it is ready
        free_s = max(now_s, since_s) if loads else now_s
        return Resident(model, free_s, free_s, drain_s)
    stays_s = node.load_s * (1.0 / options.swap_share - 1.0)
    called_s = min(stays_s, LAST_CALL_LOADS * node.load_s)
    return Resident(model, since_s + called_s, since_s + stays_s, drain_s)


def next_swap(
    node: Node, classes: list[list[WaitQueue]], jobs: bool, now_s: float, options: Options
) -> tuple[WaitQueue | None, float]:
    """Return the queue for which a model should leave now, or None and when to look again.

    `classes` are the queues with something for this node, by class in the order of choice; the only
    class is that of `jobs`, if so. Call it when there is no room for another model.
    """
    rivals = in_turn(node, classes)
    if not rivals:
        return None, NEVER_S
    served = [
        place for place, queues in enumerate(classes)
        if any(memory.is_warm(node, queue.lane.model) for queue in queues)
    ]  # fmt: skip
    claim = served[0] if served else len(classes)
    outgoing = resident(node, classes, jobs, now_s, options)
    again_s = NEVER_S
    for rival in rivals:
        head = next_for(rival.queue, node)
        if head is None or (not jobs and now_s + outgoing.drain_s >= head.deadline_s):
            continue  # it would be too late
        due_s = outgoing.ends_s
        if claim <= rival.place:
            due_s = max(due_s, rival.queue.unserved_since_s + options.swap_wait_s)
        if due_s <= now_s:
            return rival.queue, NEVER_S
        if not jobs and not rival.warm_elsewhere:
            call_s = _last_call_s(node, outgoing, rival, head, now_s)
            if call_s <= now_s:
                return rivals[0].queue, NEVER_S
            due_s = min(due_s, call_s)
        again_s = min(again_s, due_s)
    return None, again_s


def _last_call_s(node: Node, outgoing: Resident, rival: Rival, head: Entry, now_s: float) -> float:
    """Return from when on a head must have its turn; never, where it comes too late then."""
    drain_s = memory.service_s(node, outgoing.model, 0.9)
    if drain_s is None:  # nothing measured: as long as it has run already, by rule of thumb
        drain_s = max(
            (now_s - run.since_s for run in memory.running_there(node, outgoing.model)), default=0.0
        )
    call_s = head.deadline_s - drain_s - LAST_CALL_SLACK_S - rival.before_s
    call_s = max(call_s, outgoing.callable_s)
    reached_s = max(call_s, now_s) + outgoing.drain_s + rival.before * node.load_s
    return call_s if reached_s < head.deadline_s else NEVER_S


def in_turn(node: Node, classes: list[list[WaitQueue]]) -> list[Rival]:
    """Return the queues whose model is not in memory, the next in turn first."""
    cold = [
        (place, is_warm_elsewhere(queue, node), node.left_at_s.get(queue.lane.model, 0.0), queue)
        for place, queues in enumerate(classes)
        for queue in queues
        if not memory.is_warm(node, queue.lane.model)
    ]
    cold.sort(key=lambda one: (*one[:3], one[3].unserved_since_s))
    rivals: list[Rival] = []
    before: dict[str, tuple[int, float]] = {}  # several classes and families may want one model
    taken_s = 0.0
    for place, elsewhere, left_s, queue in cold:
        model = queue.lane.model
        if model not in before:
            before[model] = (len(before), taken_s)
            taken_s += node.load_s + memory.usual_service_s(node, model)
        rivals.append(Rival(queue, place, elsewhere, left_s, *before[model]))
    return rivals


def is_warm_elsewhere(queue: WaitQueue, node: Node) -> bool:
    """Say whether another node that is up has a queue's model in memory."""
    model = queue.lane.model
    return any(
        other is not node and other.state == "online" and memory.is_warm(other, model)
        for other in queue.lane.nodes.values()
    )


def earliest_s(
    node: Node, classes: list[list[WaitQueue]], queue: WaitQueue, now_s: float, options: Options
) -> float:
    """Return how soon a newcomer of a cold queue can run here at best, were it first in its queue.

    `classes` as in `next_swap`; its own queue may be among them.
    """
    model, left_s = queue.lane.model, node.left_at_s.get(queue.lane.model, 0.0)
    wait_s, before = 0.0, {model}
    for rival in in_turn(node, classes):
        other = rival.queue.lane.model
        if other not in before and (rival.queue.rank, rival.left_s) < (queue.rank, left_s):
            before.add(other)
            wait_s += node.load_s + memory.usual_service_s(node, other)
    if has_room(node):
        return wait_s
    outgoing = resident(node, classes, False, now_s, options)
    return wait_s + max(outgoing.drain_s, outgoing.callable_s - now_s)
