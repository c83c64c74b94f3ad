"""The keys that were made while a gateway ran, as this process knows them, and their mark."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.errors import StoreFailed
from forebay.records.keys import KeyTable
from forebay.settings import SettingsError, parse_key, resolve_made_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.records.keys import KeyRecord
    from forebay.settings import KeySettings, ResolvedKey

logger = logging.getLogger("forebay.gateway")

UNREAD = -1
"""The number of a table that nobody has read yet."""


class MadeKeys:
    """Holds them and reports every change; `take` applies what was read from the database."""

    def __init__(self) -> None:
        self.table = KeyTable(UNREAD)
        self.is_known = False
        """Whether they were read once, or there is no database that they could be in."""
        self.unreadable: list[str] = []
        """The names of keys that are switched off because they cannot be read."""
        self.on_change: list[Callable[[], None]] = []
        self.names: dict[str, str] = {}
        """The name of the key of each owner, also of those that were revoked."""

    def take(self, table: KeyTable) -> None:
        """Take over what was read; `KeyTable(UNREAD)` where there is nothing to read."""
        if self.is_known and table.number == self.table.number:
            return
        self.table, self.is_known = table, True
        self.names = table.revoked | {key.owner: key.name for key in table.keys}
        for tell in self.on_change:
            tell()

    def revoked(self) -> Mapping[str, str]:
        """Return the names of the keys that were revoked, by owner."""
        return self.table.revoked

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
                wrong = "; ".join(map(str, error.problems))
        self.unreadable.append(record.name)
        words = "key %s of the database is switched off: %s; revoke it and create it anew"
        logger.error(words, record.name, wrong)
        return None


class KeyMark:
    """An empty file beside that of a SQLite database, which shows that keys are in it.

    A database that was deleted, replaced or restored from an old copy looks like one that never had
    keys, and a gateway without keys is open to everyone.
    """

    def __init__(self, database: Path | None) -> None:
        self._database = database
        self._path = None if database is None else Path(f"{database}.keys")

    def exists(self) -> bool:
        return self._path is not None and os.path.exists(self._path)

    def write(self) -> None:
        """Write it, before the first key is committed; raises StoreFailed."""
        if self._path is not None:
            try:
                self._path.touch(0o600)
            except OSError as error:
                raise StoreFailed(f"{self._path} cannot be written: {error.strerror}") from error

    def remove(self) -> None:
        """Delete it; one that cannot be deleted closes the gateway at its next start."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def check(self) -> None:
        """Raise StoreFailed where it is there and the database is not: none is to be made then."""
        if self.exists() and self._database is not None and not os.path.exists(self._database):
            raise self._keys_lost()

    def follow(self, table: KeyTable, known: int) -> None:
        """Take over whether there are keys; raises StoreFailed where the database has lost them.

        They were revoked where the table is a later one than that which is known.
        """
        if table.keys:
            with contextlib.suppress(StoreFailed):
                self.write()
        elif UNREAD < known < table.number:
            self.remove()
        elif self.exists():
            raise self._keys_lost()

    def _keys_lost(self) -> StoreFailed:
        return StoreFailed(
            f"{self._database} is missing or holds no keys, and {self._path} shows that it did: "
            f"restore that file, or, if everyone may use this gateway, delete {self._path}"
        )
