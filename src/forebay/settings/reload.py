"""What a reload would change: a plan, made without touching anything.

Nodes, keys, models and the limits of queue and retry can change while the gateway runs. All else
needs a restart, and a plan that has such a change must not be applied, not even in part: half of a
file is nobody's intention.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from forebay.core.options import FROZEN_WHILE_RUNNING
from forebay.settings.errors import SettingsError, SettingsProblem
from forebay.settings.keys import KeySettings
from forebay.settings.model import Settings
from forebay.settings.names import sections
from forebay.settings.nodes import NodeSettings
from forebay.settings.queue import KEY_OF_OPTION

RELOADED = ("queue", "retry", "models")
NEEDS_A_RESTART = frozenset(f"queue.{KEY_OF_OPTION[option]}" for option in FROZEN_WHILE_RUNNING)
FOUND_AT_THE_START = ("jobs.database",)
"""Their defaults depend on which files there are; such a default stays until the gateway ends."""


class Named(Protocol):
    """A block with a name of its own."""

    @property
    def name(self) -> str:
        """What the block is known by."""


Block = TypeVar("Block", bound=Named)


@dataclass(frozen=True)
class Difference(Generic[Block]):
    """How a list of blocks changes; a block is the same one while its name is."""

    added: tuple[Block, ...]
    removed: tuple[Block, ...]
    """As they were."""
    changed: tuple[Block, ...]
    """As they will be."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class ReloadPlan:
    """What changes from one set of settings to another."""

    settings: Settings
    """What holds once the plan is applied."""
    nodes: Difference[NodeSettings]
    keys: Difference[KeySettings]
    queue: tuple[str, ...]
    """The keys of `[queue]` that change, by dotted name; so too below."""
    retry: tuple[str, ...]
    models: tuple[str, ...]
    refused: tuple[SettingsProblem, ...]
    """Changes that need a restart. With any of them, apply nothing."""

    def raise_if_refused(self) -> None:
        """Raise `SettingsError` when a change needs a restart."""
        if self.refused:
            raise SettingsError(self.refused)


def plan_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Return what would change, and what cannot without a restart."""
    changed = [key for name in sections() for key in _changed(name, old, new)]
    refused = [key for key in changed if _is_refused(key)]
    by_section = {
        name: tuple(key for key in changed if key.startswith(f"{name}.") and key not in refused)
        for name in RELOADED
    }
    return ReloadPlan(
        settings=new,
        nodes=_difference(old.nodes, new.nodes),
        keys=_difference(old.keys, new.keys),
        queue=by_section["queue"],
        retry=by_section["retry"],
        models=by_section["models"],
        refused=tuple(_restart(key) for key in refused),
    )


def _is_refused(key: str) -> bool:
    return key.partition(".")[0] not in RELOADED or key in NEEDS_A_RESTART


def _restart(key: str) -> SettingsProblem:
    wrong = "cannot change while the gateway runs: it needs a restart"
    return SettingsProblem(key, wrong, "restart the gateway, or put the old value back and reload")


def _changed(name: str, old: Settings, new: Settings) -> Iterable[str]:
    one, other = getattr(old, name), getattr(new, name)
    for field in sections()[name]:
        if getattr(one, field) != getattr(other, field) and not (
            f"{name}.{field}" in FOUND_AT_THE_START
            and field not in one.model_fields_set | other.model_fields_set
        ):
            yield f"{name}.{field}"


def _difference(old: Sequence[Block], new: Sequence[Block]) -> Difference[Block]:
    before = {block.name: block for block in old}
    after = {block.name: block for block in new}
    return Difference(
        added=tuple(block for block in new if block.name not in before),
        removed=tuple(block for block in old if block.name not in after),
        changed=tuple(block for block in new if before.get(block.name, block) != block),
    )
