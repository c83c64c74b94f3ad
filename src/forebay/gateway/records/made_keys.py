"""The keys that were made while a gateway ran, as this process knows them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.records.keys import KeyTable
from forebay.settings import SettingsError, parse_key, resolve_made_key

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
        self.unreadable: list[str] = []
        """The names of keys that are switched off because they cannot be read."""
        self.on_change: list[Callable[[], None]] = []
        self.names: dict[str, str] = {}
        """The name of the key of each owner, also of those that were revoked."""

    def take(self, table: KeyTable) -> None:
        """Take over what was read; `KeyTable(UNREAD)` goes on without keys until it is."""
        if self.is_told and table.number == self.table.number:
            return
        self.table, self.is_told = table, True
        self.names = table.revoked | {key.owner: key.name for key in table.keys}
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
        self.unreadable = []
        for record in self.table.keys:
            if (settings := self._usable(record)) is not None:
                key = resolve_made_key(settings, record.owner, priorities)
                if key.name not in names and key.sha256 not in digests:
                    known.append(key)
        return tuple(known)

    def _usable(self, record: KeyRecord) -> KeySettings | None:
        """Return a key's settings; None, and a note of it, where we cannot hold to what it says.

        A newer program may have made it, or its row is broken: it is switched off alone.
        """
        wrong = "its row cannot be read"
        if record.settings is not None:
            given = {**record.settings, "name": record.name, "key_sha256": record.sha256}
            try:
                return parse_key(given)
            except SettingsError as error:
                wrong = str(error)
        self.unreadable.append(record.name)
        words = "key %s of the database is switched off: %s; revoke it and create it anew"
        logger.error(words, record.name, wrong)
        return None
