"""One suite for the job store on every database it may be kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from forebay.testing.job_store_contract import JobStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.cls.url_fixture))


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[[], JobStore]]:
    opened: list[Database] = []

    def open_one() -> JobStore:
        database = Database(url, JOBS)
        database.open()
        opened.append(database)
        return JobStore(database)

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def store(open_store: Callable[[], JobStore]) -> JobStore:
    return open_store()


class TestSqlite(JobStoreContract):
    url_fixture = "sqlite_url"
    many = True


class TestSqliteInMemory(JobStoreContract):
    url_fixture = "memory_url"

    @pytest.mark.skip(reason="what is in memory is gone when it is closed")
    def test_everything_is_there_after_it_was_closed(self) -> None:  # type: ignore[override]
        ...


class TestPostgresql(JobStoreContract):
    url_fixture = "postgres_url"
    many = True
