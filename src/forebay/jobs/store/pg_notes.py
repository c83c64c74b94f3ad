"""What gateways on one PostgreSQL tell each other: hints, so that nobody has to wait for a poll.

A note is written by the transaction that it tells of (NOTIFY), so it comes when that is committed
and not at all when it is not, and costs no commit of its own. It holds what changed, as far as
somebody elsewhere may be waiting for it: a job to run, one to stop, one that is followed. What
would be long says only "look": everybody then asks the database. Notes are never needed: whatever
they tell is found by polling, too, only later.

A note is JSON: who wrote it, the changes, whether batches were made or cancelled, whether to look,
whether GPU memory was given back.
What cannot be read (a newer program wrote it) means "look".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from sqlalchemy import text

from forebay.jobs.job import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

CHANNEL = "forebay_jobs"
BYTES_MAX = 7_900
"""PostgreSQL takes less than 8,000 in one note."""
CHANGES_MAX = 200
"""More than so many in one transaction, and to look is cheaper than to read them."""
STAGE_CHARS_MAX = 200
KEY = ("notes", 0)
"""After the batches' counts: what is told last holds up nobody else's commit for longer."""


class Note(Struct, frozen=True, array_like=True):
    """One message."""

    sender: str
    changes: tuple[Change, ...] = ()
    batches: bool = False
    """Whether a batch was made or cancelled."""
    look: bool = False
    """Whether more has changed than is said."""
    room: bool = False
    """Whether GPU memory was given back."""


class Writing:
    """The notes of one transaction, sent at its end."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._changes: list[Change] = []
        self._batches = False
        self.room = False

    def add(self, changes: Sequence[Change]) -> None:
        """Tell of changes, as far as others care."""
        self._changes += filter(concerns_others, changes)

    def add_batch(self) -> None:
        """Tell that a batch was made or cancelled."""
        self._batches = True

    def __call__(self, connection: Connection) -> None:
        """Send them."""
        told = payloads(self._sender, self._changes, batches=self._batches)
        if self.room:
            told.append(_encode(Note(self._sender, room=True)))
        for payload in told:
            connection.execute(
                text("SELECT pg_notify(:channel, :payload)"),
                {"channel": CHANNEL, "payload": payload},
            )


def concerns_others(change: Change) -> bool:
    """Say whether a change is news elsewhere: lines of batches are followed by nobody.

    But another gateway may run a new line, and must stop one that was ended under it.
    """
    if change.batch_id is None:
        return True
    return change.status == "queued" or (change.before == "running" and change.fence > 0)


def payloads(sender: str, changes: Sequence[Change], *, batches: bool) -> list[str]:
    """Return notes, each short enough; one that says "look" where they would be many.

    >>> payloads("a", [Change(1, "chat", "model:m", "queued", None)], batches=False)
    ['["a",[[1,"chat","model:m","queued",null,null,null,null,0,true]],false,false,false]']
    >>> payloads("a", [], batches=False)
    []
    """
    if not changes and not batches:
        return []
    if len(changes) > CHANGES_MAX:
        return [_encode(Note(sender, (), batches, look=True))]
    whole = _encode(Note(sender, tuple(changes), batches))
    if len(whole.encode()) <= BYTES_MAX:
        return [whole]
    if len(changes) == 1:
        return [_encode(Note(sender, (), batches, look=True))]
    half = len(changes) // 2
    return [
        *payloads(sender, changes[:half], batches=batches),
        *payloads(sender, changes[half:], batches=False),
    ]


def read(payload: str) -> Note:
    """Return what a note says.

    >>> read("from the future").look
    True
    """
    try:
        return msgspec.json.decode(payload, type=Note)
    except msgspec.MsgspecError:
        return Note("", look=True)


def _encode(note: Note) -> str:
    return msgspec.json.encode(note).decode()
