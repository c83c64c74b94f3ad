"""The tables of records, in the database of the jobs, with versions of their own.

What is only ever read whole (the settings of a key, an ended request, a point of the series) is
JSON in one column: it may grow members without a migration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, Table, Text, text

from forebay.storage.schema import Number, Schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

metadata = MetaData()

api_keys = Table(
    "api_keys",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False, unique=True),  # of the key's text, which is nowhere
    Column("settings", Text, nullable=False),  # JSON: what its holder may do
    Column("created_at", Float, nullable=False),
    Column("created_by", Text, nullable=False),  # a key; empty for a caller on the machine itself
    Column("owner", Text, nullable=False, server_default=""),  # empty: drawn when it is next read
)

revoked_keys = Table(
    "revoked_keys",
    metadata,
    Column("number", Number, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
)

changes = Table(
    "record_changes",
    metadata,
    Column("of", Text, primary_key=True),  # the name of a table
    Column("number", BigInteger, nullable=False),  # rises with every change of it
)
"""By which several programs notice that a table is not as they have read it."""

usage_hours = Table(
    "usage_hours",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),  # since 1970
    Column("key", Text, primary_key=True),  # an owner; empty without keys
    Column("user", Text, primary_key=True),
    Column("model", Text, primary_key=True),  # empty where it never ran
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
)

ended_requests = Table(
    "ended_requests",
    metadata,
    Column("number", Number, primary_key=True),
    Column("replica", Text, nullable=False),  # the gateway that served it; empty for one alone
    Column("request", Text, nullable=False),  # JSON: those that were written together
    Column("count", Integer, nullable=False, server_default="1"),  # how many these are
)

Index("ended_requests_of", ended_requests.c.replica, ended_requests.c.number)

minutes = Table(
    "minute_series",
    metadata,
    Column("minute", Integer, primary_key=True, autoincrement=False),  # since 1970
    Column("replica", Text, primary_key=True),
    Column("point", Text, nullable=False),  # JSON
)


def _count_requests(connection: Connection) -> None:
    """Version 2: one row for all requests that are written together."""
    added = "ALTER TABLE ended_requests ADD COLUMN count INTEGER NOT NULL DEFAULT 1"
    connection.execute(text(added))


def _own_by_id(connection: Connection) -> None:
    """Version 3: what a key made belongs to an id, not to its name."""
    added = "ALTER TABLE api_keys ADD COLUMN owner TEXT NOT NULL DEFAULT ''"
    connection.execute(text(added))
    revoked_keys.create(connection)


RECORDS = Schema(metadata, "forebay_records_schema", (_count_requests, _own_by_id))
