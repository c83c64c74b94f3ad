"""Runners that are shut down whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs import TaskRunner
from forebay.jobs.database import Database
from forebay.jobs.store import JobStore

from .script import LIMIT_S, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        opened.append(Database(url))
        opened[-1].open()
        return JobStore(opened[-1])

    yield make
    for database in opened:
        database.close()
