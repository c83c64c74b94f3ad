"""What the core knows of a node: its slots, what runs there, which models are in memory.

A lease is one entry in `Node.leases`, taken and given back in one place each (`tickets`). Nothing
counts up and down, so nothing can drift: the number of leases is the size of a dict. A lowered slot
count drains: no lease is ever taken away.

A request that fails while its node answers others has itself to blame: a *strike* of its user on
that node. With `STRIKES_MAX` of them the user's requests start there only when nobody else's of
their class waits for the node, until one is answered or `STRIKES_S` have passed since the last.
What fails otherwise is counted in `forebay.nodes.health`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.core import memory, slots
from forebay.core.cache_room import CacheRoom
from forebay.core.records import BROKEN_OFF_MAX

if TYPE_CHECKING:
    from forebay.core.actions import WaitReason
    from forebay.core.events import NodeChanged
    from forebay.core.records import Node

GPU_SHARE: Final = 0.3
"""Weight of the GPU's load in the choice of a node; specification 1."""
BUSY_SHARE: Final = 0.7
"""Weight of the slots in use; specification 1."""
IDLE_S: Final = 300.0
"""Over how long it is counted how much of a node was free."""
BROKEN_OFF_S: Final = 1.0
"""How long a node may take to notice that a request was broken off."""
STRIKES_MAX: Final = 3
STRIKES_S: Final = 600.0
STRUCK_MAX: Final = 256  # users with strikes that are remembered of a node: the latest
NOTICE_S: Final = 0.1
"""How long a node rests that says it is busy meanwhile: most notice within milliseconds."""


def new_excuses() -> deque[float]:
    """Return a memory of when requests were cancelled on a node: see `is_excused`."""
    return deque(maxlen=BROKEN_OFF_MAX)


def is_excused(broken_off: deque[float], now_s: float) -> bool:
    """Say whether a refusal is excused by a cancellation just before, and use that up.

    The node may not have noticed yet that it has room for one more; but not for more than one, so
    that who cancels often does not hide that it is full.

    >>> is_excused(deque([1.0, 5.0]), 5.5), is_excused(deque([1.0]), 5.5)
    (True, False)
    """
    while broken_off:
        if now_s - broken_off.popleft() <= BROKEN_OFF_S:
            return True
    return False


def would_open(node: Node, now_s: float) -> bool:
    """Say whether a new request might start here now, were no slot lent that is not filled."""
    return len(node.leases) < node.slots and node.state == "online" and now_s >= node.rest_until_s


def has_room(node: Node) -> bool:
    """Say whether a slot is neither leased nor lent."""
    return len(node.leases) + node.lent < node.slots


def outlook(node: Node, now_s: float, offline_wait_s: float) -> WaitReason | None:
    """Say why one may wait for it while it is not online; None where that is of no use."""
    if node.state == "loading":
        return "loading"
    if now_s - node.away_since_s < offline_wait_s:
        return "starting" if node.is_new else "offline"
    return None


def score(node: Node) -> float:
    """Return how busy it is; the lowest is preferred."""
    # `float`: compiled, a float by an int is a call of the interpreter's own arithmetic
    return GPU_SHARE * node.gpu_load + BUSY_SHARE * float(len(node.leases)) / float(node.slots)


def idle_share(node: Node, now_s: float) -> float:
    """Return the share of its slots that was free over the last minutes; 1 before anything ran."""
    if node.idle_at_s is None:
        node.idle_at_s = now_s
    passed_s = now_s - node.idle_at_s
    if passed_s > 0.0:
        node.idle_at_s = now_s
        for_s = node.idle_for_s + passed_s  # twice a request, so without a call for each bound
        node.idle_for_s = for_s = for_s if for_s < IDLE_S else IDLE_S
        free = 1.0 - float(len(node.leases)) / float(node.slots or 1)
        change = (free if free > 0.0 else 0.0) - node.idle
        node.idle += change if passed_s >= for_s else change * passed_s / for_s
    return node.idle


def add_strike(node: Node, user: str, now_s: float) -> None:
    """Count a failure that its node is not to blame for."""
    count, at_s = node.strikes.pop(user, (0, now_s))
    node.strikes[user] = (count + 1 if now_s - at_s < STRIKES_S else 1), now_s
    if len(node.strikes) > STRUCK_MAX:
        del node.strikes[next(iter(node.strikes))]


def struck(node: Node, now_s: float) -> frozenset[str]:
    """Return the users whose requests give way to others' here."""
    return frozenset(
        user
        for user, (count, at_s) in node.strikes.items()
        if count >= STRIKES_MAX and now_s - at_s < STRIKES_S
    )


def may_run(node: Node, model: str) -> bool:
    """Say whether another request of a model that does not rest here may start."""
    return model not in node.on_trial or model not in node.leases.values()


def update(node: Node, event: NodeChanged, now_s: float) -> None:
    """Take over what is reported, keeping what only the core knows."""
    node.state = event.state
    node.away_since_s = now_s - event.away_s
    node.is_new = event.is_new
    node.ready_at_s = None if event.ready_in_s is None else now_s + event.ready_in_s
    node.limit_kept = slots.changed(node.limit_kept, event)
    node.limit = node.limit_kept if event.slots_kind in ("found", "named") else None
    node.slots = max(0, event.slots) if node.limit is None else node.limit.slots
    node.gpu_load = event.gpu_load
    node.models = event.models
    node.families = event.families
    node.on_trial = event.on_trial
    if event.kv_free_tokens < 0:
        node.room = None
    elif node.room is None or node.room.reading != event.kv_reading:
        node.room = CacheRoom(event.kv_free_tokens, event.kv_reading)
    memory.update_models(node, event, now_s)
