"""Migrations of a schema on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import MetaData, text

from forebay.storage.database import Database
from forebay.storage.schema import Schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

LIMIT_S = 10.0  # only turns a hang into a failure


def test_a_migration_may_take_longer_than_other_statements(postgres_url: str) -> None:
    limits: list[object] = []

    def limit_of(connection: Connection) -> object:
        return connection.execute(text("SHOW statement_timeout")).scalar()

    def step(connection: Connection) -> None:
        limits.append(limit_of(connection))

    for steps in ((), (step,)):
        database = Database(postgres_url, Schema(MetaData(), "versions", steps))
        database.open()
        assert database.read(limit_of).result(LIMIT_S) == "30s"
        database.close(LIMIT_S)
    assert limits == ["0"]
