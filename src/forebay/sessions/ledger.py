"""The write-ahead ledger: what was promised is written before it is promised.

A prompt is in the ledger before its 202 is sent, and its outcome is in the ledger before its
terminal event is told. So after a crash every accepted prompt is found either with its outcome,
or without one, and then gets exactly one: those that were queued go on, the one that ran is told
that its outcome is unknown.

Writes are futures of the database's one writing thread and happen in the order they are asked for.
One gateway holds a file at a time. A PostgreSQL database is held by one gateway that works alone,
or by several that share a queue: each has a name, and the sessions of that name (`ledger_lock`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import bindparam, delete, func, insert, select, true, update

from forebay.errors import ForebayError, StoreFailed
from forebay.sessions.conversation import TURNS_MAX, Message, Turn
from forebay.sessions.ledger_lock import LedgerLock
from forebay.sessions.prompt import Prompt, Result, Sender
from forebay.sessions.record import Recovered, SessionRecord
from forebay.sessions.schema import SESSIONS, prompts, sessions
from forebay.storage.database import Database
from forebay.storage.file_lock import FileLock

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sqlalchemy import Connection, Executable, Row

OPEN_S = 15.0
LOAD_CHARS_MAX = 1_048_576
"""How much of a session is taken over by the next process: what it may hold in memory."""
PRUNE_EVERY = 20
"""How often a session's oldest turns are looked for, in prompts."""

# Made once: to make a statement takes longer than to run it.
_OF_ID = prompts.c.id == bindparam("of_id")
_ADD = insert(prompts)
_DISCARD = delete(prompts).where(_OF_ID)
_START = update(prompts).where(_OF_ID).values(status="running", started_at=bindparam("started_at"))
_END = (
    update(prompts)
    .where(_OF_ID)
    .values({name: bindparam(name) for name in ("status", "result", "event_id", "ended_at")})
)
_END_WITHOUT = _END.values(messages="[]")
_PRUNE = delete(prompts).where(
    prompts.c.session_id == bindparam("of_session"),
    prompts.c.seq <= bindparam("up_to"),
    prompts.c.ended_at.is_not(None),
)


class Ledger:
    """The sessions of one gateway, on disk."""

    def __init__(self, url: str, replica: str = "") -> None:
        """`replica` is the gateway's name among those that share a queue; "" works alone."""
        self._replica = replica
        self._lock = LedgerLock(replica)
        self._database = Database(url, SESSIONS, prepare=self._lock.take)
        path = self._database.path
        remedy = "give each gateway its own `sessions.database`"
        self._file = FileLock(path, ".sessions", "gateway", remedy) if path is not None else None

    def open(self) -> None:
        """Open it as the only one; blocks. Raises StoreFailed or NotAllowed."""
        self._database.open()
        try:
            if self._file is not None:
                self._file.take()
            self.flush().result(OPEN_S)
        except BaseException as error:
            self._database.close()
            if isinstance(error, TimeoutError):
                raise StoreFailed("the database of sessions does not answer") from error
            raise

    def close(self, limit_s: float) -> None:
        """Finish what was asked for, within a limit, and let go; blocks. May be called twice."""
        with contextlib.suppress(ForebayError, TimeoutError):
            self.flush().result(limit_s)  # committed before another may read it
            # Now, not when the server notices that we have left.
            self._database.write(self._lock.let_go)
        self._database.close(limit_s)
        if self._file is not None:
            self._file.release()

    def recover(self) -> Future[list[SessionRecord]]:
        """Return all sessions of this gateway, each of which begins another life.

        Whoever holds the database alone has all of them, whatever gateway made them. Of several,
        each has its own; the first to come takes over what one made that worked alone.
        """
        name = self._replica
        is_shared = bool(name) and not self._database.is_sqlite

        def work(connection: Connection) -> list[SessionRecord]:
            if is_shared:
                ownerless = update(sessions).where(sessions.c.replica == "")
                connection.execute(ownerless.values(replica=name))
            own = sessions.c.replica == name if is_shared else true()
            connection.execute(update(sessions).where(own).values(life=sessions.c.life + 1))
            rows = connection.execute(select(sessions).where(own).order_by(sessions.c.created_at))
            return [_record(row) for row in rows]

        return self._database.write(work)

    def load(self, record: SessionRecord) -> Future[Recovered]:
        """Return what the last process left of a session, and forget what is too much."""

        def work(connection: Connection) -> Recovered:
            first = _first_kept(connection, record.id)
            old = {"of_session": record.id, "up_to": first - 1}
            connection.execute(_PRUNE, old)
            of_session = prompts.c.session_id == record.id
            rows = connection.execute(
                select(prompts).where(of_session).order_by(prompts.c.seq)
            ).all()
            events = {row.id: row.event_id for row in rows if row.event_id is not None}
            used_at = max([record.used_at, *(row.ended_at or row.accepted_at for row in rows)])
            return Recovered(
                replace(record, used_at=used_at), [_prompt(row) for row in rows], events
            )

        return self._database.write(work)

    def holder(self, session_id: str) -> Future[str]:
        """Return the name of the gateway that has a session; "" where none of several has it."""
        statement = select(sessions.c.replica).where(sessions.c.id == session_id)
        return self._database.read(lambda connection: connection.execute(statement).scalar() or "")

    def create(self, record: SessionRecord) -> Future[None]:
        """Write a new session."""
        values = {
            **{name: getattr(record, name) for name in SessionRecord.__struct_fields__},
            "system": _json(record.system),  # JSON, because PostgreSQL's texts cannot hold a NUL
            "options": _json(record.options),
            "base": _json(record.base),
            "replica": self._replica,
        }
        return self._write(insert(sessions), values)

    def delete(self, session_id: str) -> Future[None]:
        """Forget a session and all of its prompts."""

        def work(connection: Connection) -> None:
            connection.execute(delete(prompts).where(prompts.c.session_id == session_id))
            connection.execute(delete(sessions).where(sessions.c.id == session_id))

        return self._database.write(work)

    def accept(self, session_id: str, prompt: Prompt) -> Future[None]:
        """Write a prompt before it is promised; now and then what is too old goes."""
        sender = prompt.sender
        values = {
            "id": prompt.id,
            "session_id": session_id,
            "seq": prompt.seq,
            "key": sender.key,
            "user": sender.user,
            "priority": sender.priority,
            "max_wait_s": sender.max_wait_s,
            "messages": _json(prompt.messages),
            "status": "queued",
            "accepted_at": prompt.accepted_at,
            "deadline_at": prompt.deadline_at,
        }

        def work(connection: Connection) -> None:
            connection.execute(_ADD, values)
            if prompt.seq % PRUNE_EVERY == 0:
                old = {"of_session": session_id, "up_to": prompt.seq - TURNS_MAX}
                connection.execute(_PRUNE, old)

        return self._database.write(work)

    def discard(self, prompt: Prompt) -> Future[None]:
        """Forget a prompt that was never promised."""
        return self._write(_DISCARD, {"of_id": prompt.id})

    def start(self, prompt: Prompt) -> Future[None]:
        """Note that a prompt runs: what becomes of it cannot be known after a crash."""
        return self._write(_START, {"of_id": prompt.id, "started_at": prompt.started_at})

    def end(self, prompt: Prompt, event_id: int, ended_at: float) -> Future[None]:
        """Write the outcome before it is told."""
        values = {
            "of_id": prompt.id,
            "status": prompt.status,
            "result": _json(prompt.result),
            "event_id": event_id,
            "ended_at": ended_at,
        }
        # What a turn without an answer had said will not be needed again.
        return self._write(_END if prompt.status == "completed" else _END_WITHOUT, values)

    def flush(self) -> Future[None]:
        """Be done when everything is that was asked for before."""
        return self._database.write(lambda connection: None)

    def _write(self, statement: Executable, values: dict[str, Any]) -> Future[None]:
        def work(connection: Connection) -> None:
            connection.execute(statement, values)

        return self._database.write(work)


def _first_kept(connection: Connection, session_id: str) -> int:
    """Return the oldest turn that there is room for; those without an end are always kept."""
    size = func.length(prompts.c.messages) + func.coalesce(func.length(prompts.c.result), 0)
    rows = connection.execute(
        select(prompts.c.seq, size)
        .where(prompts.c.session_id == session_id)
        .order_by(prompts.c.seq.desc())
    )
    first, total = 0, 0
    for seq, letters in rows:
        total += letters
        if total > LOAD_CHARS_MAX:
            return first or int(seq)
        first = int(seq)
    return first


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _record(row: Row[Any]) -> SessionRecord:
    return SessionRecord(
        row.id,
        row.owner,
        row.model,
        msgspec.json.decode(row.system),
        row.max_tokens,
        msgspec.json.decode(row.options),
        msgspec.json.decode(row.base, type=tuple[Turn, ...]),
        row.created_at,
        row.used_at,
        row.life,
    )


def _prompt(row: Row[Any]) -> Prompt:
    messages = msgspec.json.decode(row.messages, type=tuple[Message, ...])
    sender = Sender(row.key, row.user, row.priority, row.max_wait_s)
    prompt = Prompt(row.id, row.seq, messages, sender, row.accepted_at)
    prompt.deadline_at, prompt.started_at = row.deadline_at, row.started_at
    prompt.status = row.status
    if row.started_at is not None:
        prompt.waited_ms = max(0, int((row.started_at - row.accepted_at) * 1000))
    if row.result is not None:
        prompt.told = True
        prompt.result = msgspec.json.decode(row.result, type=Result)
    return prompt
