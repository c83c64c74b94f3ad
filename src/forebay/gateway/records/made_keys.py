"""The keys that were made while a gateway ran, as this process knows them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.records.keys import KeyTable
from forebay.settings import SettingsError, parse_key, resolve_made_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.records.keys import KeyRecord
    from forebay.settings import KeySettings, ResolvedKey

logger = logging.getLogger("forebay.gateway")

UNREAD = -1
"""The number of a table that nobody has read yet."""


class MadeKeys:
    """Holds them and reports every change; `take` applies what was read from the database."""

    def __init__(self) -> None:
        self.table = KeyTable(UNREAD)
        self.is_told = False
        """Whether there is anything to go by: what was read, or that one goes on without it."""
        self.on_change: list[Callable[[], None]] = []

    def take(self, table: KeyTable) -> None:
        """Take over what was read; `KeyTable(UNREAD)` goes on without keys until it is."""
        if self.is_told and table.number == self.table.number:
            return
        self.table, self.is_told = table, True
        for tell in self.on_change:
            tell()

    def named(self, name: str) -> KeyRecord | None:
        return next((key for key in self.table.keys if key.name == name), None)

    def resolved(
        self, first: Iterable[ResolvedKey], priorities: tuple[str, ...]
    ) -> tuple[ResolvedKey, ...]:
        """Return the keys of the settings, and these behind them where they are others."""
        known = list(first)
        names = {key.name for key in known}
        digests = {key.sha256 for key in known}
        usable = [key for record in self.table.keys if (key := _usable(record))]
        made = resolve_made_keys(usable, priorities)
        known += [key for key in made if key.name not in names and key.sha256 not in digests]
        return tuple(known)


def _usable(record: KeyRecord) -> KeySettings | None:
    """Return a key's settings; None where a newer program made it, with what we cannot hold to."""
    given = {**record.settings, "name": record.name, "key_sha256": record.sha256}
    try:
        return parse_key(given)
    except SettingsError as error:
        logger.error("ignoring key %s: %s", record.name, error)
        return None
