"""The tables of jobs, files and batches.

Indexes that workers walk are partial, so that finished jobs cost them nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.schema import CreateIndex

from forebay.storage.schema import Number, Schema, partial_index

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

metadata = MetaData()

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
    Column("custom_id", Text),  # of a batch's line
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("webhook_due", Float),  # when to deliver it; NULL: never
    Column("webhook_attempt", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,  # an id is never used again
)

files = Table(
    "files",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),  # its public id
    Column("owner", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    sqlite_autoincrement=True,
)

file_parts = Table(
    "file_parts",  # the bytes of files, where they are kept in the database: since version 2
    metadata,
    Column("name", Text, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)

gpu_holds = Table(
    "gpu_holds",  # since version 2, and not used any more: programs of before look for it
    metadata,
    Column("gpu", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("task_type", Text, primary_key=True),
    Column("gb", Float, nullable=False),
    Column("until", Float, nullable=False),
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
    Column(
        "keeper", Text, nullable=False, server_default=""
    ),  # the gateway that holds its lease, until
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

batch_models = Table(
    "batch_models",  # the models that a batch's lines ask for: since version 5
    metadata,
    Column("model", Text, primary_key=True),
    Column("batch_id", Number, primary_key=True, autoincrement=False),
)

served_queues = Table(
    "served_queues",  # which gateway had a queue's model last: since version 6
    metadata,
    Column("queue", Text, primary_key=True),
    Column("gateway", Text, nullable=False),
    Column("until", Float, nullable=False),
)

QUEUED: ColumnElement[bool] = jobs.c.status == literal_column("'queued'")
RUNNING: ColumnElement[bool] = jobs.c.status == literal_column("'running'")
UNENDED: ColumnElement[bool] = jobs.c.status.in_(
    [literal_column("'queued'"), literal_column("'running'")]
)
ENDED: ColumnElement[bool] = jobs.c.status.in_(
    [literal_column("'completed'"), literal_column("'failed'"), literal_column("'cancelled'")]
)
"""Conditions with literal values: a partial index is only used where the condition implies its own,
which the planner cannot see through a parameter."""
BATCH_LAST: ColumnElement[int] = func.coalesce(jobs.c.batch_id, literal_column("0"))
"""Puts an owner's lines of batches behind their other jobs."""
BATCH_ENDED_AT: ColumnElement[float] = func.coalesce(
    batches.c.completed_at, batches.c.failed_at, batches.c.expired_at, batches.c.cancelled_at
)
"""When a batch ended; NULL while it has not."""


partial_index(
    "jobs_same", jobs.c.fingerprint, where=text("status IN ('queued', 'running')"), unique=True
)
partial_index(
    "jobs_same_key",
    jobs.c.owner,
    jobs.c.idempotency_key,
    where=text("idempotency_key IS NOT NULL AND status IN ('queued', 'running')"),
    unique=True,
)
partial_index(
    "jobs_next", jobs.c.queue, jobs.c.priority, jobs.c.id, where=text("status = 'queued'")
)
partial_index("jobs_held", jobs.c.worker, where=text("status = 'running'"))
partial_index("jobs_lines", jobs.c.batch_id, jobs.c.line, where=text("batch_id IS NOT NULL"))
Index("jobs_listed", jobs.c.status, jobs.c.task_type, jobs.c.batch_id, jobs.c.id)
partial_index("jobs_to_tell", jobs.c.webhook_due, where=text("webhook_due IS NOT NULL"))
partial_index("batches_to_tell", batches.c.webhook_due, where=text("webhook_due IS NOT NULL"))
Index("files_of_owner", files.c.owner, files.c.id)
Index("batches_of_owner", batches.c.owner, batches.c.id)
Index("batch_models_of_batch", batch_models.c.batch_id)
partial_index(
    "batches_open",
    batches.c.input_file,
    where=text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
)
SINCE_VERSION_3 = (
    partial_index(
        "jobs_ended",
        jobs.c.finished_at,
        where=text("batch_id IS NULL AND status IN ('completed', 'failed', 'cancelled')"),
    ),
    partial_index("jobs_of_model", jobs.c.model, jobs.c.id, where=text("batch_id IS NULL")),
    Index("batches_ended", BATCH_ENDED_AT),
    Index("batches_input", batches.c.input_file),
    Index("batches_output", batches.c.output_file),
    Index("batches_error", batches.c.error_file),
    Index("files_by_age", files.c.created_at),
)
"""For finding what is old, and whether a batch still names a file."""
SINCE_VERSION_4 = (
    partial_index(
        "jobs_next_of_owner",
        jobs.c.queue, jobs.c.owner, jobs.c.priority, jobs.c.id,
        where=text("status = 'queued'"),
    ),
)  # fmt: skip
"""For claiming jobs of one owner, or passing over all of another: there may be many of theirs."""
SINCE_VERSION_7 = (
    partial_index(
        "jobs_in_turn",
        jobs.c.queue, jobs.c.owner, jobs.c.priority, BATCH_LAST, jobs.c.id,
        where=text("status = 'queued'"),
    ),
    partial_index(
        "jobs_last_start",
        jobs.c.queue, jobs.c.owner, jobs.c.priority, jobs.c.started_at,
        where=text("started_at IS NOT NULL"),
    ),
)  # fmt: skip
"""For turns between owners: whose jobs are queued, and who started last."""


def _to_version_2(connection: Connection) -> None:
    metadata.create_all(connection, [file_parts, gpu_holds])


def _create(connection: Connection, indexes: tuple[Index, ...]) -> None:
    for index in indexes:
        connection.execute(CreateIndex(index, if_not_exists=True))


def _to_version_3(connection: Connection) -> None:
    _create(connection, SINCE_VERSION_3)


def _to_version_4(connection: Connection) -> None:
    _create(connection, SINCE_VERSION_4)


def _to_version_5(connection: Connection) -> None:
    metadata.create_all(connection, [batch_models])
    loaded = select(jobs.c.model, jobs.c.batch_id).where(jobs.c.batch_id.is_not(None)).distinct()
    connection.execute(insert(batch_models).from_select(["model", "batch_id"], loaded))


def _to_version_6(connection: Connection) -> None:
    metadata.create_all(connection, [served_queues])


def _to_version_7(connection: Connection) -> None:
    _create(connection, SINCE_VERSION_7)


JOBS = Schema(
    metadata,
    "forebay_schema",
    (_to_version_2, _to_version_3, _to_version_4, _to_version_5, _to_version_6, _to_version_7),
)
