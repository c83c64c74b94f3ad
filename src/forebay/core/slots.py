"""How many requests a node runs well at once, found from how it answers. No I/O and no clock.

**State.** `Limit` is all that is known of one node's number: `Node.limit`, None where the number
is `fixed` or `lent` (see `SlotsKind`). `Node.slots` is the number in force. The core calls
`changed` for each `NodeChanged`, `finished` for each run that ended well, `refused` and
`waits_inside` for `NodeRested`, `timed_out` for a `Finished` or `Returned` with that reason. Each
may change `Limit.slots`; where it did, the scheduler sets `Node.slots` and tells it by
`SlotsChanged`, with a reason in words. What is lent is filled by another core, to which the node is
of the kind `lent`: it changes nothing, and tells in sums what ran (`Finished.count`, `most`).

**Pools.** `nodes.model_slots` gives some models slots of their own. To the core such a pool is a
node of its own, with a fixed number: `split_pools` makes the events. Whoever starts a request knows
by the name of the pool which node to send it to.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.events import NodeChanged

SLOTS_MAX: Final = 256
"""The ceiling where the engine does not name one."""
POOL_MARK: Final = "#"


def pool_name(node: str, pattern: str) -> str:
    """Return what the core knows a pool of a node by."""
    return f"{node}{POOL_MARK}{pattern}"


def split_pools(change: NodeChanged, model_slots: Mapping[str, int]) -> list[NodeChanged]:
    """Return what is to be told of a node and then of each of its pools: same length every time.

    A model belongs to the first pattern that matches it. Pools take no part in model turns.
    """
    left, told = change.models, []
    for pattern, slots in model_slots.items():
        here = tuple(model for model in left if fnmatchcase(model, pattern))
        left = tuple(model for model in left if model not in here)
        pool = replace(change, name=pool_name(change.name, pattern), models=here, loaded=None)
        told.append(replace(pool, slots=slots, slots_kind="fixed"))
    if not told:
        return [change]
    loaded = change.loaded
    own = loaded and tuple(model for model in loaded if model in left)
    return [replace(change, models=left, loaded=own), *told]


class Limit:
    """What is known of one node's number of slots."""

    __slots__ = ("ceiling", "is_named", "is_trial", "reason", "slots")

    def __init__(self, start: int, *, is_named: bool = False) -> None:
        self.is_named = is_named
        self.ceiling = start if is_named else SLOTS_MAX
        self.slots = max(1, min(start, self.ceiling))
        self.is_trial = False  # whether `slots` was set for a round only, or set back after one
        self.reason = ""  # why it is what it is, for people; "" before the first change
