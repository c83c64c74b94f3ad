"""Who is told what has changed: listeners in this program, and other programs by notes."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

import msgspec

from forebay.jobs.store import pg_notes as notes
from forebay.jobs.store.pg_notes import Writing
from forebay.storage.listening import STOP_S, Listener
from forebay.storage.postponing import postponed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from forebay.jobs.job import Change
    from forebay.storage.database import Database

logger = logging.getLogger("forebay.jobs")


class News:
    """Listeners are called on the thread that wrote, or on the one that hears of other programs."""

    def __init__(self, *, told_elsewhere: bool) -> None:
        self.listeners: list[Callable[[Change], None]] = []
        """Are told of every change that is committed."""
        self.lookers: list[Callable[[], object]] = []
        """Are called when other programs may have changed anything at all; so are the others."""
        self.batch_lookers: list[Callable[[], object]] = []
        """Are also called when other programs have made or cancelled a batch."""
        self.room_lookers: list[Callable[[], object]] = []
        """Are also called when other programs have given back GPU memory."""
        self._told_elsewhere = told_elsewhere
        self._name = secrets.token_hex(8)  # ours among the writers of notes
        self._listener: Listener | None = None

    # -- to other programs

    def note(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Have other programs told of changes, when this transaction is committed."""
        if changes and self._told_elsewhere:
            self._writing(connection).add(changes)

    def note_batch(self, connection: Connection) -> None:
        """Have other programs told that a batch was made or cancelled."""
        if self._told_elsewhere:
            self._writing(connection).add_batch()

    def note_room(self, connection: Connection) -> None:
        """Have other programs told that GPU memory was given back."""
        if self._told_elsewhere:
            self._writing(connection).room = True

    def _writing(self, connection: Connection) -> Writing:
        return postponed(connection, notes.KEY, lambda: Writing(self._name))

    # -- in this program

    def announce(self, changes: Sequence[Change]) -> None:
        """Tell the listeners of changes that are committed."""
        for change in changes:
            for listener in self.listeners:
                try:
                    listener(change)
                except Exception:  # a listener's bug is not the store's
                    logger.exception("a listener failed", extra={"job": change.id})

    # -- from other programs

    def listen(self, database: Database) -> None:
        """Hear what other programs tell, from now on; nothing beside SQLite. Stop it in the end."""
        if self._told_elsewhere and self._listener is None:
            self._listener = Listener(database, notes.CHANNEL, self.hear, self.look)
            self._listener.start()

    def stop_listening(self, limit_s: float = STOP_S) -> None:
        """Hear nothing more; may be called twice."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop(limit_s)

    def hear(self, payload: str) -> None:
        """Take in what a program told."""
        note = notes.read(payload)
        if note.sender == self._name:
            return
        if note.look:
            self.look()
        if note.batches:
            _call_all(self.batch_lookers)
        if note.room:
            _call_all(self.room_lookers)
        replace = msgspec.structs.replace
        self.announce([replace(change, here=False, waited_s=None) for change in note.changes])

    def look(self) -> None:
        """Have everyone look for himself: nobody knows what others have changed."""
        for lookers in (self.lookers, self.batch_lookers, self.room_lookers):
            _call_all(lookers)


def _call_all(lookers: Sequence[Callable[[], object]]) -> None:
    for look in list(lookers):
        try:
            look()
        except Exception:  # as above
            logger.exception("a listener failed")
