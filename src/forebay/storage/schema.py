"""Versioned schemas and their migrations.

Migrations only ever add tables and columns: a program runs on the schema after its own, too (an old
worker while the new one starts), and refuses one that is further ahead. Each schema counts its own
versions, so that several may share a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import FunctionElement

from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Dialect, Select, TextClause
    from sqlalchemy.sql.ddl import ExecutableDDLElement
    from sqlalchemy.types import TypeEngine

Number = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER keys count up there


class now_s(FunctionElement[float]):  # noqa: N801 - reads as the SQL function that it is
    """The database's clock, in seconds since 1970: one clock for all workers."""

    type: TypeEngine[float] = Float()
    inherit_cache: bool | None = True


@compiles(now_s, "sqlite")
def _now_sqlite(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now_s, "postgresql")
def _now_postgresql(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())::float8"


def only(wanted: Select[Any], key: Column[Any]) -> ColumnElement[bool]:
    """Return the condition that a row is one of those that a query locks.

    PostgreSQL may run a subquery again for every outer row; with LIMIT and SKIP LOCKED it would
    find others each time, and lock them all. A common table expression with locks is run once.
    """
    return key.in_(select(wanted.cte("chosen").c[key.name]))


def partial_index(
    name: str, *columns: ColumnElement[Any], where: TextClause, unique: bool = False
) -> Index:
    """Return an index of some rows only, so that the others cost nothing."""
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


class Schema:
    """Tables and their version."""

    def __init__(
        self,
        metadata: MetaData,
        version_table: str,
        steps: tuple[Callable[[Connection], None], ...] = (),
    ) -> None:
        """`steps` are the migrations since version 1, in order, one for each version.

        A new database is created from the tables, so the steps must lead to the same schema.
        """
        self._metadata = metadata
        self._steps = steps
        self._statements: dict[str, list[str]] = {}
        self.version = 1 + len(steps)
        self.version_table = Table(
            version_table, metadata, Column("version", Integer, nullable=False)
        )

    def migrate(self, connection: Connection) -> None:
        """Bring the tables up to date; raises NotAllowed when they are too far ahead."""
        if connection.dialect.name == "postgresql":  # several programs may start at once
            connection.execute(text("SELECT pg_advisory_xact_lock(7800)"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # there may be many rows
        found = self._found(connection)
        if found > self.version + 1:
            raise NotAllowed(
                f"the database has schema {found}, this program knows {self.version}: "
                "run a newer Forebay, or give it another database"
            )
        if found == 0:
            for statement in self._made_by(connection.dialect):
                connection.exec_driver_sql(statement)
            connection.execute(insert(self.version_table).values(version=self.version))
            return
        for step in self._steps[found - 1 :]:
            step(connection)
        if found < self.version:
            connection.execute(update(self.version_table).values(version=self.version))

    def _made_by(self, dialect: Dialect) -> list[str]:
        """Return the statements that make the tables: compiled once, for every new database."""
        if dialect.name not in self._statements:
            made: list[ExecutableDDLElement] = []
            for table in self._metadata.sorted_tables:
                indexes = sorted(table.indexes, key=lambda index: index.name or "")
                made += [CreateTable(table), *map(CreateIndex, indexes)]
            self._statements[dialect.name] = [str(one.compile(dialect=dialect)) for one in made]
        return self._statements[dialect.name]

    def _found(self, connection: Connection) -> int:
        if not inspect(connection).has_table(self.version_table.name):
            return 0
        return int(connection.execute(select(self.version_table.c.version)).scalar() or 0)
