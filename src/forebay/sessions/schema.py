"""The tables of sessions: what is needed to go on after a crash, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    text,
)

from forebay.storage.schema import Schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

metadata = MetaData()

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),  # the name of a key; empty without keys
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


SESSIONS = Schema(metadata, "forebay_sessions_schema", (_name_replicas,))
