"""Runners that are shut down and desks that are closed, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs import TaskRunner
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

from .desk import Desk
from .script import LIMIT_S, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def script(sqlite_url: str) -> Iterator[Callable[..., Script]]:
    """Make a script with a runner that is not started; polls are too rare to help a test pass."""
    made: list[Script] = []

    def make(url: Any = sqlite_url, **options: Any) -> Script:
        given = {"gpus": list, "poll_seconds": 1000.0, **options}
        made.append(Script(TaskRunner(url, **given)))
        return made[-1]

    yield make
    for one in made:
        one.end()
        one.runner.shutdown(LIMIT_S)


@pytest.fixture
def open_store() -> Iterator[Callable[[str], JobStore]]:
    """Another program's way to the database."""
    opened: list[Database] = []

    def make(url: str) -> JobStore:
        opened.append(Database(url, JOBS))
        opened[-1].open()
        return JobStore(opened[-1])

    yield make
    for database in opened:
        database.close()


@pytest.fixture
def open_desk(database_url: str, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Make one gateway's view of the same database after another."""
    opened: list[Desk] = []

    def open_one(**options: Any) -> Desk:
        opened.append(Desk(database_url, tmp_path / "files", **options))
        return opened[-1]

    yield open_one
    for desk in opened:
        desk.close()


@pytest.fixture
def desk(open_desk: Callable[..., Desk]) -> Desk:
    """One view of a database, of each kind there is."""
    return open_desk()
