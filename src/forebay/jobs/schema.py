"""The tables, and the steps that made them what they are.

Migrations are only ever added, and only ever add: a program runs on the schema after its own, too
(an old worker while the new one starts), and refuses one that is further ahead than that.
Indexes that workers walk are partial, so that what is finished costs them nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    insert,
    inspect,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.types import TypeEngine

metadata = MetaData()
Number = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER keys count up there


class now_s(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The database's own clock, in seconds since 1970: one clock for all workers."""

    type: TypeEngine[float] = Float()
    inherit_cache: bool | None = True


@compiles(now_s, "sqlite")
def _now_sqlite(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now_s, "postgresql")
def _now_postgresql(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())::float8"


jobs = Table(
    "jobs",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("task_type", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("params", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("model", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("fingerprint", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("result", Text),
    Column("error", Text),
    Column("error_code", Text),
    Column("traceback", Text),
    Column("stage", Text),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("worker", Text, nullable=False, server_default=""),
    Column("lease_until", Float),
    Column("batch_id", Number, ForeignKey("batches.id")),
    Column("line", Integer),
    Column("custom_id", Text),  # of a batch's line: what its caller knows it by
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("webhook_due", Float),  # when its end is to be told; nothing while nobody is told
    Column("webhook_attempt", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,  # an id is never used again
)

files = Table(
    "files",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),  # what callers know it by
    Column("owner", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,
)

batches = Table(
    "batches",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("completion_window", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("input_file", Text, nullable=False),
    Column("output_file", Text),
    Column("error_file", Text),
    Column("errors", Text),  # JSON: what is wrong with the input, line by line
    Column("metadata", Text),
    Column("outcome", Text, nullable=False, server_default="completed"),  # how it will end
    Column("cursor_bytes", BigInteger, nullable=False, server_default="0"),
    Column("cursor_line", Integer, nullable=False, server_default="0"),
    Column("loaded_at", Float),  # when the last line became a row
    Column("keeper", Text, nullable=False, server_default=""),  # who is working on it, until
    Column("keeper_until", Float, nullable=False, server_default="0"),
    Column("total", Integer, nullable=False, server_default="0"),
    Column("completed", Integer, nullable=False, server_default="0"),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("in_progress_at", Float),
    Column("expires_at", Float, nullable=False),
    Column("finalizing_at", Float),
    Column("completed_at", Float),
    Column("failed_at", Float),
    Column("expired_at", Float),
    Column("cancelling_at", Float),
    Column("cancelled_at", Float),
    Column("webhook_due", Float),
    Column("webhook_attempt", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

QUEUED: ColumnElement[bool] = jobs.c.status == literal_column("'queued'")
RUNNING: ColumnElement[bool] = jobs.c.status == literal_column("'running'")
UNENDED: ColumnElement[bool] = jobs.c.status.in_(
    [literal_column("'queued'"), literal_column("'running'")]
)
"""Conditions with their values written out: a partial index is only used where the database sees
that the condition is its own, and it does not see through a parameter."""


def _partial(name: str, *columns: Column[Any], where: Any, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


_partial(
    "jobs_same", jobs.c.fingerprint, where=text("status IN ('queued', 'running')"), unique=True
)
_partial(
    "jobs_same_key",
    jobs.c.owner,
    jobs.c.idempotency_key,
    where=text("idempotency_key IS NOT NULL AND status IN ('queued', 'running')"),
    unique=True,
)
_partial("jobs_next", jobs.c.queue, jobs.c.priority, jobs.c.id, where=text("status = 'queued'"))
_partial("jobs_held", jobs.c.worker, where=text("status = 'running'"))
_partial("jobs_lines", jobs.c.batch_id, jobs.c.line, where=text("batch_id IS NOT NULL"))
Index("jobs_listed", jobs.c.status, jobs.c.task_type, jobs.c.batch_id, jobs.c.id)
_partial("jobs_to_tell", jobs.c.webhook_due, where=text("webhook_due IS NOT NULL"))
_partial("batches_to_tell", batches.c.webhook_due, where=text("webhook_due IS NOT NULL"))
Index("files_of_owner", files.c.owner, files.c.id)
Index("batches_of_owner", batches.c.owner, batches.c.id)
_partial(
    "batches_open",
    batches.c.input_file,
    where=text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
)

version = Table("forebay_schema", metadata, Column("version", Integer, nullable=False))


STEPS: tuple[Callable[[Connection], None], ...] = ()
"""What was added since version 1, in order: each takes the schema one version further. A new
database is made whole from the tables above, so a step must lead to what they say."""
VERSION = 1 + len(STEPS)


def migrate(connection: Connection) -> None:
    """Bring the schema up to date; raises NotAllowed when it is too far ahead for this program."""
    if connection.dialect.name == "postgresql":  # one at a time, should several programs start
        connection.execute(text("SELECT pg_advisory_xact_lock(7800)"))
    found = _version(connection)
    if found > VERSION + 1:
        raise NotAllowed(
            f"the database has schema {found}, this program knows {VERSION}: "
            "run a newer Forebay, or give it another database"
        )
    if found == 0:
        metadata.create_all(connection)
        connection.execute(insert(version).values(version=VERSION))
        return
    for step in STEPS[found - 1 :]:
        step(connection)
    if found < VERSION:
        connection.execute(update(version).values(version=VERSION))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(version.name):
        return 0
    return int(connection.execute(select(version.c.version)).scalar() or 0)
