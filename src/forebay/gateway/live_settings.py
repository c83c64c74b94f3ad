"""The settings in use, and how they are reloaded: as a whole, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.settings import SettingsError, node_api_key, plan_reload, resolve_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from forebay.settings import ReloadPlan, ResolvedKey, Settings

    Apply = Callable[[ReloadPlan, Sequence[ResolvedKey]], None]


class LiveSettings:
    """Holds the settings; `current` is another object after a reload."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] | None,
        read: Callable[[], Settings] | None,
        apply: Apply,
    ) -> None:
        """`apply` hands a valid plan and the keys to those whom they concern; it must not fail."""
        self.current = settings
        self._apply = apply
        self._environ = environ
        self._read = read
        self._reading = asyncio.Lock()  # else what was read earlier might be applied later

    async def reload(self) -> list[str]:
        """Read the settings again, off the event loop, and apply them; return the changed names.

        Raises SettingsError, and changes nothing, where any of them is invalid, needs a restart, or
        names a secret that is missing.
        """
        if self._read is None:
            raise SettingsError([])
        async with self._reading:
            new = await asyncio.to_thread(self._read)
            plan = plan_reload(self.current, new)
            plan.raise_if_refused()
            keys = resolve_keys(plan.settings, self._environ)
            for node in (*plan.nodes.added, *plan.nodes.changed):
                node_api_key(node, self._environ)
            self.current = plan.settings
            self._apply(plan, keys)
        return _changed_names(plan)


def _changed_names(plan: ReloadPlan) -> list[str]:
    names = [*plan.queue, *plan.retry, *plan.models, *plan.usage]
    for kind, difference in (("nodes", plan.nodes), ("keys", plan.keys)):
        blocks = (*difference.added, *difference.removed, *difference.changed)
        names += [f"{kind}.{block.name}" for block in blocks]
    return names
