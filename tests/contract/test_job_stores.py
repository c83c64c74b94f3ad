"""One suite for the job store on every database it may be kept in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from forebay.testing.job_store_contract import JobStoreContract, letter

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


class DepthIsShared:
    """Of owners that share the depth of a type, none takes all of it."""

    many = False

    def test_a_greedy_owner_leaves_places_however_many_gateways_add(
        self, store: JobStore, open_store: Callable[[], JobStore]
    ) -> None:
        stores = [store, open_store() if self.many else store]
        asked = [stores[n % 2].add([letter(n, owner="a")], 20, owners=2) for n in range(40)]
        added = [one for future in asked for one in future.result(20)]
        assert Counter(one.status for one in added) == {"queued": 16, "failed": 24}
        refused = next(one for one in added if one.status == "failed")
        assert refused.refusal.startswith("this key holds 16 of 20")
        assert store.retry(refused.id, None, 20, owners=2).result(10).full
        others = store.add([letter(owner=name) for name in "bcd"], 20, owners=4).result(10)
        assert [one.status for one in others] == ["queued"] * 3
        assert store.add([letter(50, owner="a")], 20).result(10)[0].status == "queued"

    def test_what_is_added_at_once_keeps_to_the_share_too(self, store: JobStore) -> None:
        store.add([letter(n, owner="a") for n in range(8)], 20, owners=2).result(10)
        more = [letter(n, owner="a") for n in range(8, 20)] + [letter(1, owner="b")]
        added = store.add(more, 20, owners=2).result(10)
        assert [one.status for one in added] == ["queued"] * 8 + ["failed"] * 4 + ["queued"]


class TestSqlite(DepthIsShared, JobStoreContract):
    url_fixture = "sqlite_url"
    many = True


class TestSqliteInMemory(DepthIsShared, JobStoreContract):
    url_fixture = "memory_url"

    @pytest.mark.skip(reason="what is in memory is gone when it is closed")
    def test_everything_is_there_after_it_was_closed(self) -> None:  # type: ignore[override]
        ...


class TestPostgresql(DepthIsShared, JobStoreContract):
    url_fixture = "postgres_url"
    many = True
