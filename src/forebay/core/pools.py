"""Slots of their own for some models of a node (`nodes.model_slots`).

To the core such a pool is a node of its own, with a fixed number. Whoever starts a request knows by
the name of the pool which node to send it to.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.events import NodeChanged

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
