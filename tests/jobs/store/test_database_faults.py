"""What goes wrong with a database, and whose trouble that is: of a group, of the last writer."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import OperationalError

from forebay.errors import NotAllowed
from forebay.jobs.batches.file import FileInUse
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

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


def test_a_group_whose_database_is_away_fails_at_once(sqlite_url: str) -> None:
    asked: list[int] = []

    def away(number: int) -> Callable[[Connection], None]:
        def work(_: Connection) -> None:
            asked.append(number)
            raise OperationalError("", {}, Exception("away"))

        return work

    with closing(Database(sqlite_url, JOBS)) as database:
        database.open()
        futures = together(database, *(away(number) for number in range(50)))
        assert all(future.exception(LIMIT_S) is not None for future in futures)
    assert len(asked) < 10  # not each by itself


def test_closing_does_not_wait_for_a_database_that_hangs(database: Database) -> None:
    stuck = threading.Event()
    asked: list[Future[Any]] = [database.write(lambda _: stuck.wait(30))]
    asked.append(database.write(lambda _: None))
    database.close(0.2)
    assert all(one.exception(LIMIT_S) is not None for one in asked)
    stuck.set()


def test_the_file_of_prompts_is_its_owners_alone(sqlite_url: str, tmp_path: Path) -> None:
    with closing(Database(sqlite_url, JOBS)) as database:
        database.open()
        database.write(note(1001)).result(LIMIT_S)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("jobs.db*")}
    assert set(modes.values()) == {0o600}, modes
