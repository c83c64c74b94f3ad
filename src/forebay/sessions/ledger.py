"""The write-ahead ledger of sessions: its tables, its locks and its statements.

A prompt is in the ledger before its 202 is sent, and its outcome is in the ledger before its
terminal event is published. So after a crash every accepted prompt is found either with its
outcome, or without one, and then gets exactly one: queued prompts are resumed, the one that ran
ends with `outcome_unknown`.

Writes are futures of the database's one writing thread and are executed in order. One gateway holds
a file at a time. A PostgreSQL database is held by one gateway that works alone, or by several that
share a queue: each has a name, and the sessions of that name (`LedgerLock`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    text,
    true,
    update,
)

from forebay.errors import ForebayError, NotAllowed, StoreFailed
from forebay.sessions.conversation import TURNS_MAX, CompletedTurn, Message
from forebay.sessions.prompt import Prompt, Sender, TurnResult
from forebay.sessions.record import Recovered, SessionRecord
from forebay.storage.database import Database
from forebay.storage.file_lock import FileLock
from forebay.storage.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from sqlalchemy import Connection, Executable, Row

LOCK_NUMBER = 7801
OPEN_S = 15.0
LOAD_CHARS_MAX = 1_048_576
"""How much of a session the next process loads: what it may hold in memory."""
PRUNE_EVERY = 20
"""How often a session's oldest turns are pruned, in prompts."""


metadata = MetaData()

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),  # of its key; empty without keys
    Column("model", Text, nullable=False),
    Column("system", Text, nullable=False),  # JSON: a text, or null
    Column("max_tokens", Integer, nullable=False),
    Column("options", Text, nullable=False),  # JSON: what else the node is asked with
    Column("base", Text, nullable=False),  # JSON: the turns that a branch began with
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("life", Integer, nullable=False),  # how many processes have held it before
    # The gateway that has it, where several share the database; empty for one that works alone,
    # and for programs that do not know this column.
    Column("replica", Text, nullable=False, server_default=""),
)

prompts = Table(
    "session_prompts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("priority", Text, nullable=False),
    Column("max_wait_s", Float),
    Column("messages", Text, nullable=False),
    Column("status", Text, nullable=False),  # queued, running, completed, failed, cancelled
    Column("accepted_at", Float, nullable=False),
    Column("deadline_at", Float),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("result", Text),  # JSON: the outcome
    Column("event_id", BigInteger),  # the number of its one terminal event
)

Index("session_prompts_of", prompts.c.session_id, prompts.c.seq)


def _name_replicas(connection: Connection) -> None:
    """Version 2: sessions belong to one of several gateways."""
    connection.execute(text("ALTER TABLE sessions ADD COLUMN replica TEXT NOT NULL DEFAULT ''"))


def _own_by_id(connection: Connection) -> None:
    """Version 3: owners were names of keys; each gets its id when that is known (`adopt`)."""
    for table, owner in OWNED:
        named = update(table).where(owner != "").values({owner: literal(BY_NAME) + owner})
        connection.execute(named)


OWNED = ((sessions, sessions.c.owner), (prompts, prompts.c.key))
BY_NAME = "name:"
"""How an owner begins that is known by the name of its key only: neither a name nor an id."""
SESSIONS = Schema(metadata, "forebay_sessions_schema", (_name_replicas, _own_by_id))


_LOCK = text("SELECT pg_try_advisory_lock(:number)")
_LOCK_SHARED = text("SELECT pg_try_advisory_lock_shared(:number)")
_UNLOCK_SHARED = text("SELECT pg_advisory_unlock_shared(:number)")
_UNLOCK_ALL = text("SELECT pg_advisory_unlock_all()")
_LOCK_NAME = text("SELECT pg_try_advisory_lock(:number, :name)")


class LedgerLock:
    """Advisory locks on PostgreSQL, which the server releases when their holder dies.

    A gateway that works alone holds lock 7801 exclusively. Gateways that share a queue hold it
    shared, and each the lock of its own name beside it. So a name has one holder, and a gateway of
    an older version, which knows only the first lock, holds it exclusively as well.

    The locks belong to the one connection for writing: a gateway that has lost that cannot write
    any more, so that two can never both write.
    """

    def __init__(self, replica: str) -> None:
        """`replica` is the gateway's name among several, "" where it works alone."""
        self._replica = replica

    def take(self, connection: Connection) -> None:
        """Take the locks for as long as this connection lives; raises NotAllowed."""
        if connection.dialect.name != "postgresql":
            return
        if self._replica:
            self._take_shared(connection)
        elif not connection.execute(_LOCK, {"number": LOCK_NUMBER}).scalar():
            raise NotAllowed(
                "another gateway holds the sessions of this database: give each gateway a "
                "`sessions.database` of its own, or let them share a queue (`coordination.url`)"
            )

    def release(self, connection: Connection) -> None:
        """Release the locks; the last statement of a connection."""
        if connection.dialect.name == "postgresql":
            connection.execute(_UNLOCK_ALL)

    def _take_shared(self, connection: Connection) -> None:
        if not connection.execute(_LOCK_SHARED, {"number": LOCK_NUMBER}).scalar():
            raise NotAllowed(
                "a gateway that works alone holds the sessions of this database: give it a "
                "`sessions.database` of its own, or the `coordination.url` of the others"
            )
        name = {"number": LOCK_NUMBER, "name": _as_int4(self._replica)}
        if not connection.execute(_LOCK_NAME, name).scalar():
            connection.execute(_UNLOCK_SHARED, {"number": LOCK_NUMBER})  # it goes back to a pool
            raise NotAllowed(
                f"another gateway named {self._replica} holds its sessions in this database: give "
                "each gateway a `coordination.advertise` of its own"
            )


def _as_int4(name: str) -> int:
    """Return the number that eight hexadecimal digits are, as PostgreSQL has it: with a sign."""
    return int.from_bytes(bytes.fromhex(name), signed=True)


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


class SessionLedger:
    """The sessions of one gateway, in the database."""

    def __init__(self, url: str, replica: str = "") -> None:
        """`replica` is the gateway's name among those that share a queue; "" works alone."""
        self._replica = replica
        self._lock = LedgerLock(replica)
        self._database = Database(url, SESSIONS, prepare=self._lock.take)
        self.has_lost_file = self._database.has_lost_file
        path = self._database.path
        remedy = "give each gateway its own `sessions.database`"
        self._file = FileLock(path, ".sessions", "gateway", remedy) if path is not None else None

    def open(self) -> None:
        """Open and lock it; blocks. Raises StoreFailed or NotAllowed."""
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
        """Finish pending writes, within a limit, and unlock; blocks. May be called twice."""
        with contextlib.suppress(ForebayError, TimeoutError):
            self.flush().result(limit_s)  # committed before another may read it
            # Explicitly: the server may notice late that the connection is gone.
            self._database.write(self._lock.release)
        self._database.close(limit_s)
        if self._file is not None:
            self._file.release()

    def adopt(self, owners: Mapping[str, str]) -> Future[None]:
        """Give what is owned by the name of a key to its owner, found by that name.

        Where there is none, it belongs to the name, as with keys of the settings: a key that is
        made anew under it at run time must not find it at the next start.
        """

        def work(connection: Connection) -> None:
            for table, owner in OWNED:
                named = select(owner).where(owner.startswith(BY_NAME)).distinct()
                for old in connection.execute(named).scalars().all():
                    new = owners.get(name := old.removeprefix(BY_NAME), name)
                    connection.execute(update(table).where(owner == old).values({owner: new}))

        return self._database.write(work)

    def recover(self) -> Future[list[SessionRecord]]:
        """Return all sessions of this gateway, and count the next life of each.

        A gateway that holds the database alone has all of them, whichever gateway made them. Of
        several, each has its own; the first takes over those of a gateway that worked alone.
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
        """Return what the last process left of a session, and prune what is too much."""

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
        values = {
            **{name: getattr(record, name) for name in SessionRecord.__struct_fields__},
            "system": _json(record.system),  # JSON, because PostgreSQL's texts cannot hold a NUL
            "options": _json(record.options),
            "base": _json(record.base),
            "replica": self._replica,
        }
        return self._write(insert(sessions), values)

    def delete(self, session_id: str) -> Future[None]:

        def work(connection: Connection) -> None:
            connection.execute(delete(prompts).where(prompts.c.session_id == session_id))
            connection.execute(delete(sessions).where(sessions.c.id == session_id))

        return self._database.write(work)

    def accept(self, session_id: str, prompt: Prompt) -> Future[None]:
        """Insert a prompt before it is acknowledged; every PRUNE_EVERY prompts, prune old ones."""
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
        """Delete a prompt that was never acknowledged."""
        return self._write(_DISCARD, {"of_id": prompt.id})

    def start(self, prompt: Prompt) -> Future[None]:
        """Record that a prompt runs: after a crash its outcome is unknown."""
        return self._write(_START, {"of_id": prompt.id, "started_at": prompt.started_at})

    def end(self, prompt: Prompt, event_id: int, ended_at: float) -> Future[None]:
        values = {
            "of_id": prompt.id,
            "status": prompt.status,
            "result": _json(prompt.result),
            "event_id": event_id,
            "ended_at": ended_at,
        }
        # The messages of a turn without an answer are not needed again.
        return self._write(_END if prompt.status == "completed" else _END_WITHOUT, values)

    def flush(self) -> Future[None]:
        return self._database.write(lambda connection: None)

    def _write(self, statement: Executable, values: dict[str, Any]) -> Future[None]:
        def work(connection: Connection) -> None:
            connection.execute(statement, values)

        return self._database.write(work)


def _first_kept(connection: Connection, session_id: str) -> int:
    """Return the oldest turn within LOAD_CHARS_MAX; those without an end are always kept."""
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
        msgspec.json.decode(row.base, type=tuple[CompletedTurn, ...]),
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
        prompt.is_published = True
        prompt.result = msgspec.json.decode(row.result, type=TurnResult)
    return prompt
