"""The write-ahead ledger: what was promised is written before it is promised.

A prompt is in the ledger before its 202 is sent, and its outcome is in the ledger before its
terminal event is told. So after a crash every accepted prompt is found either with its outcome,
or without one, and then gets exactly one: those that were queued go on, the one that ran is told
that its outcome is unknown.

Writes are futures of the database's one writing thread and happen in the order they are asked for.
One gateway holds a ledger at a time: by a lock on the file, or by an advisory lock of PostgreSQL,
both of which the system lets go of when the holder dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import bindparam, create_engine, delete, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from forebay.errors import NotAllowed, StoreFailed
from forebay.sessions.conversation import TURNS_MAX, Message, Turn
from forebay.sessions.prompt import Prompt, Result, Sender
from forebay.sessions.record import Recovered, SessionRecord
from forebay.sessions.schema import SESSIONS, prompts, sessions
from forebay.storage.database import Database
from forebay.storage.file_lock import FileLock

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sqlalchemy import Connection, Engine, Executable, Row

ADVISORY_LOCK = 7801
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
_PRUNE = delete(prompts).where(
    prompts.c.session_id == bindparam("of_session"),
    prompts.c.seq <= bindparam("up_to"),
    prompts.c.ended_at.is_not(None),
)


class Ledger:
    """The sessions of one gateway, on disk."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, SESSIONS)
        self._url = url
        path = self._database.path
        self._file = (
            FileLock(path, ".sessions", "gateway", "give each gateway its own `sessions.database`")
            if path is not None
            else None
        )
        self._lock: tuple[Engine, Connection] | None = None

    def open(self) -> None:
        """Open it as the only one; blocks. Raises StoreFailed or NotAllowed."""
        self._database.open()
        try:
            if self._file is not None:
                self._file.take()
            elif not self._database.is_sqlite:
                self._lock = self._lock or self._advisory_lock()
        except BaseException:
            self._database.close()
            raise

    def close(self, limit_s: float) -> None:
        """Finish what was asked for, within a limit, and let go; blocks. May be called twice."""
        self._database.close(limit_s)
        if self._file is not None:
            self._file.release()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock[1].invalidate()
            lock[0].dispose()

    def recover(self) -> Future[list[Recovered]]:
        """Return all sessions, each of which begins another life."""

        def work(connection: Connection) -> list[Recovered]:
            connection.execute(update(sessions).values(life=sessions.c.life + 1))
            rows = connection.execute(select(sessions).order_by(sessions.c.created_at)).all()
            return [_recovered(connection, row) for row in rows]

        return self._database.write(work)

    def create(self, record: SessionRecord) -> Future[None]:
        """Write a new session."""
        values = {
            **{name: getattr(record, name) for name in SessionRecord.__struct_fields__},
            "system": _json(record.system),  # JSON, because PostgreSQL's texts cannot hold a NUL
            "options": _json(record.options),
            "base": _json(record.base),
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
        return self._write(_END, values)

    def flush(self) -> Future[None]:
        """Be done when everything is that was asked for before."""
        return self._database.write(lambda connection: None)

    def _write(self, statement: Executable, values: dict[str, Any]) -> Future[None]:
        def work(connection: Connection) -> None:
            connection.execute(statement, values)

        return self._database.write(work)

    def _advisory_lock(self) -> tuple[Engine, Connection]:
        """Hold a lock by a connection of its own, for as long as that lives."""
        engine = create_engine(self._database.address, isolation_level="AUTOCOMMIT")
        try:
            connection = engine.connect()
            taken = connection.execute(
                text("SELECT pg_try_advisory_lock(:number)"), {"number": ADVISORY_LOCK}
            ).scalar()
        except SQLAlchemyError as error:
            engine.dispose()
            raise StoreFailed("the database of sessions cannot be locked") from error
        if not taken:
            connection.close()
            engine.dispose()
            raise NotAllowed(
                "another gateway holds the sessions of this database: "
                "give each gateway a `sessions.database` of its own"
            )
        return engine, connection


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _recovered(connection: Connection, row: Row[Any]) -> Recovered:
    found = connection.execute(
        select(prompts).where(prompts.c.session_id == row.id).order_by(prompts.c.seq)
    ).all()
    record = SessionRecord(
        row.id,
        row.owner,
        row.model,
        msgspec.json.decode(row.system),
        row.max_tokens,
        msgspec.json.decode(row.options),
        msgspec.json.decode(row.base, type=tuple[Turn, ...]),
        row.created_at,
        max([row.used_at, *(one.ended_at or one.accepted_at for one in found)]),
        row.life,
    )
    events = {one.id: one.event_id for one in found if one.event_id is not None}
    return Recovered(record, [_prompt(one) for one in found], events)


def _prompt(row: Row[Any]) -> Prompt:
    messages = msgspec.json.decode(row.messages, type=tuple[Message, ...])
    sender = Sender(row.key, row.user, row.priority, row.max_wait_s)
    prompt = Prompt(row.id, row.seq, messages, sender, row.accepted_at)
    prompt.deadline_at, prompt.started_at = row.deadline_at, row.started_at
    prompt.status = row.status
    if row.started_at is not None:
        prompt.waited_ms = max(0, int((row.started_at - row.accepted_at) * 1000))
    if row.result is not None:
        prompt.result = msgspec.json.decode(row.result, type=Result)
    return prompt
