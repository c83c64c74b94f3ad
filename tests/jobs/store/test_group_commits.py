"""Writes that are committed together: what is wrong with one of them is nobody else's trouble."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, insert, select

from forebay.errors import NotAllowed
from forebay.jobs.batches.file import FileInUse
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

LIMIT_S = 10.0
table = JOBS.version_table


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, JOBS)
    database.open()
    yield database
    database.close()


def together(database: Database, *works: Callable[[Connection], Any]) -> list[Future[Any]]:
    """Have the works committed in one group: they come while the writer is busy."""
    begun, over = threading.Event(), threading.Event()

    def busy(_: Connection) -> None:
        begun.set()
        over.wait(LIMIT_S)

    first = database.write(busy)
    assert begun.wait(LIMIT_S)
    futures = [database.write(work) for work in works]
    over.set()
    first.result(LIMIT_S)
    return futures


def note(number: int) -> Callable[[Connection], int]:
    """Return a write that leaves a trace."""

    def work(connection: Connection) -> int:
        connection.execute(insert(table).values(version=number))
        return number

    return work


def refused(_: Connection) -> None:
    raise FileInUse("a batch that has not ended needs this file")


def test_what_one_write_is_refused_for_is_told_to_nobody_else(database: Database) -> None:
    before, wrong, behind = together(database, note(1001), refused, note(1002))
    assert before.result(LIMIT_S) == 1001
    assert behind.result(LIMIT_S) == 1002
    with pytest.raises(FileInUse):
        wrong.result(LIMIT_S)
    written = database.read(lambda connection: set(connection.execute(select(table)).scalars()))
    assert {1001, 1002} <= written.result(LIMIT_S)


def test_a_connection_that_is_refused_is_refused_for_a_group_and_asked_for_once(
    database_url: str,
) -> None:
    begun, over, asked = threading.Event(), threading.Event(), list[bool]()

    def prepare(_: Connection) -> None:
        begun.set()
        over.wait(LIMIT_S)
        asked.append(True)
        raise NotAllowed("another has the lock")

    database = Database(database_url, JOBS, prepare=prepare)
    database.open()
    try:
        futures = [database.write(note(1001))]
        assert begun.wait(LIMIT_S)
        futures += [database.write(note(number)) for number in (1002, 1003, 1004)]
        over.set()
        for future in futures:
            with pytest.raises(NotAllowed):
                future.result(LIMIT_S)
        assert len(asked) == 2  # for the first, and for those that came meanwhile
    finally:
        database.close()
