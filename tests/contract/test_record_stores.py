"""One suite for the records on every database they may be kept in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, text

from forebay.errors import StoreFailed
from forebay.records.history import MINUTES_MAX
from forebay.records.keys import KeyRecord
from forebay.records.store import CHUNK, RecordStore
from forebay.records.tables import RECORDS
from forebay.records.usage import UsageCounts, UsageKey, UsageQuery
from forebay.storage.database import CHECK_S
from forebay.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 10.0  # only turns a hang into a failure
UNREAD = -1


def key(name: str = "a", digest: str = "0" * 64) -> KeyRecord:
    return KeyRecord(name, digest, {"admin": True, "models": ["m"]}, 100.5, "boss")


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], RecordStore]]:
    url = str(request.getfixturevalue(request.cls.url_fixture))
    opened: list[RecordStore] = []

    def open_one() -> RecordStore:
        store = RecordStore(url)
        store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], RecordStore]) -> RecordStore:
    return open_store()


class RecordStoreContract:
    """What every store of records must do."""

    url_fixture: str

    def test_a_key_is_found_as_it_was_made(self, store: RecordStore) -> None:
        assert store.add_key(key()).result(LIMIT_S)
        table = store.keys(UNREAD).result(LIMIT_S)
        assert table is not None
        assert table.keys == (key(),)

    def test_keys_are_told_only_to_those_who_know_others(self, store: RecordStore) -> None:
        first = store.keys(UNREAD).result(LIMIT_S)
        assert first is not None
        assert store.keys(first.number).result(LIMIT_S) is None
        store.add_key(key()).result(LIMIT_S)
        second = store.keys(first.number).result(LIMIT_S)
        assert second is not None
        assert store.keys(second.number).result(LIMIT_S) is None
        assert store.remove_key("a").result(LIMIT_S)
        third = store.keys(second.number).result(LIMIT_S)
        assert third is not None
        assert third.keys == ()

    def test_a_key_without_an_owner_is_removed_and_nobody_revoked(self, store: RecordStore) -> None:
        assert store.add_key(replace(key(), owner="")).result(LIMIT_S)
        assert store.remove_key("a").result(LIMIT_S)
        table = store.keys(UNREAD).result(LIMIT_S)
        assert table is not None
        assert (table.keys, table.revoked) == ((), {})

    def test_a_name_and_a_text_are_there_once(self, store: RecordStore) -> None:
        assert store.add_key(key()).result(LIMIT_S)
        assert not store.add_key(key(digest="1" * 64)).result(LIMIT_S)
        assert not store.add_key(key("b")).result(LIMIT_S)
        assert not store.remove_key("b").result(LIMIT_S)
        table = store.keys(UNREAD).result(LIMIT_S)
        assert table is not None
        assert table.keys == (key(),)

    def test_usage_is_added_to_what_is_there_and_summed_up(self, store: RecordStore) -> None:
        ann, bob = UsageKey(7, "k", "ann\t=", "m"), UsageKey(7, "k", "bob", "n")
        later = UsageKey(9, "l", "ann\t=", "m")
        for rows in ([ann, bob], [ann, later]):
            store.add_usage([(one, UsageCounts(1, 2, 3)) for one in rows]).result(LIMIT_S)
        found = store.usage(UsageQuery(7, 8)).result(LIMIT_S)
        assert found == [(ann, (2, 4, 6)), (bob, (1, 2, 3))]
        by_key = store.usage(UsageQuery(0, 9, ("key",))).result(LIMIT_S)
        assert by_key == [((7, "k", "", ""), (3, 6, 9)), ((9, "l", "", ""), (1, 2, 3))]
        assert store.usage(UsageQuery(0, 9, key="l")).result(LIMIT_S) == [(later, (1, 2, 3))]
        assert len(store.usage(UsageQuery(0, 9, limit=2)).result(LIMIT_S)) == 2

    def test_old_usage_is_pruned_in_steps(self, store: RecordStore) -> None:
        rows = [(UsageKey(1, "", f"u{n}", "m"), UsageCounts(1, 0, 0)) for n in range(CHUNK + 2)]
        store.add_usage(sorted(rows)).result(LIMIT_S)
        store.add_usage([(UsageKey(5, "", "new", "m"), UsageCounts(1, 0, 0))]).result(LIMIT_S)
        steps = [store.prune_usage(7 * 3600.0, 2, 0.0).result(LIMIT_S) for _ in range(3)]
        assert steps == [CHUNK, 2, 0]
        ((left, _),) = store.usage(UsageQuery(0, 9)).result(LIMIT_S)
        assert left.user == "new"

    def test_a_clock_that_leaps_has_usage_pruned_a_day_an_hour(self, store: RecordStore) -> None:
        now = 500_000  # in 2027
        hours = [now + 24 * day for day in range(3)]
        rows = [(UsageKey(hour, "", "", "m"), UsageCounts(1, 0, 0)) for hour in hours]
        store.add_usage(rows).result(LIMIT_S)

        def pruned(hour: int, ran_h: int) -> int:
            return store.prune_usage(hour * 3600.0, 0, ran_h * 3600.0).result(LIMIT_S)

        assert pruned(now, 0) == 0
        assert [pruned(now + 9000, ran_h) for ran_h in (0, 1, 1, 2)] == [0, 1, 0, 1]
        assert pruned(now - 9000, 2) == 0, "and back"
        assert pruned(now + 9000, 3) == 1

    def test_the_last_requests_of_a_gateway_are_kept_in_order(self, store: RecordStore) -> None:
        for start in range(0, 1500, 300):
            requests = [f'{{"n":{n}}}' for n in range(start, start + 300)]
            store.add_requests("a", requests).result(LIMIT_S)
        store.add_requests("b", ['{"n":"other"}']).result(LIMIT_S)
        last = [f'{{"n":{n}}}' for n in range(500, 1500)]
        for _ in range(2):
            assert store.requests("a").result(LIMIT_S) == last
            store.prune_requests("a").result(LIMIT_S)
        assert store.requests("b").result(LIMIT_S) == ['{"n":"other"}']

    def test_the_series_of_a_gateway_is_kept_for_a_day(self, store: RecordStore) -> None:
        store.add_minutes("a", [(1, "old"), (2, "first"), (3, "x")]).result(LIMIT_S)
        store.add_minutes("b", [(3, "other")]).result(LIMIT_S)
        store.add_minutes("a", [(3, "second"), (1 + MINUTES_MAX, "last")]).result(LIMIT_S)
        kept = [(2, "first"), (3, "second"), (1 + MINUTES_MAX, "last")]
        assert store.minutes("a", 0).result(LIMIT_S) == kept
        assert store.minutes("a", 3).result(LIMIT_S) == kept[1:]
        assert store.minutes("b", 0).result(LIMIT_S) == [(3, "other")]


class RecordFileContract(RecordStoreContract):
    """What databases must do that outlive a program."""

    def test_another_program_sees_a_key_and_its_end(
        self, store: RecordStore, open_store: Callable[[], RecordStore]
    ) -> None:
        other = open_store()
        before = other.keys(UNREAD).result(LIMIT_S)
        assert before is not None
        store.add_key(key()).result(LIMIT_S)
        seen = other.keys(before.number).result(LIMIT_S)
        assert seen is not None
        assert seen.keys == (key(),)
        other.remove_key("a").result(LIMIT_S)
        other.add_key(replace(key(), created_at=2.0)).result(LIMIT_S)
        again = store.keys(seen.number).result(LIMIT_S)
        assert again is not None
        assert again.keys[0].created_at == 2.0

    def test_keys_outlive_the_program(
        self, store: RecordStore, open_store: Callable[[], RecordStore]
    ) -> None:
        store.add_key(key()).result(LIMIT_S)
        store.close()
        table = open_store().keys(UNREAD).result(LIMIT_S)
        assert table is not None
        assert table.keys == (key(),)

    def test_a_database_of_the_first_version_is_brought_up_to_date(
        self, request: pytest.FixtureRequest, open_store: Callable[[], RecordStore]
    ) -> None:
        url = str(request.getfixturevalue(self.url_fixture))
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
        with engine.begin() as connection:
            RECORDS.migrate(connection)
            connection.execute(text("ALTER TABLE ended_requests DROP COLUMN count"))
            connection.execute(text("ALTER TABLE api_keys DROP COLUMN owner"))
            connection.execute(text("DROP TABLE revoked_keys"))
            connection.execute(text("UPDATE forebay_records_schema SET version = 1"))
        engine.dispose()
        store = open_store()
        store.add_requests("", ["1", "2"]).result(LIMIT_S)
        assert store.requests("").result(LIMIT_S) == ["1", "2"]


class TestSqlite(RecordFileContract):
    url_fixture = "sqlite_url"

    def test_a_file_shows_that_another_program_has_written_but_not_soon_after(
        self, store: RecordStore, open_store: Callable[[], RecordStore], sqlite_url: str
    ) -> None:
        other, path = open_store(), sqlite_url.removeprefix("sqlite:///")
        store.add_key(key()).result(LIMIT_S)
        assert store.state_of_file() is None
        seen = []
        for name in ("b", "c", "c"):  # the last is refused, and leaves no trace
            other.add_key(key(name, name * 64)).result(LIMIT_S)
            for file in (path, f"{path}-wal"):
                os.utime(file, (1e9, 1e9))
            seen.append(store.state_of_file())
        assert None not in seen
        assert seen[0] != seen[1] == seen[2]

    def test_a_file_that_is_moved_away_is_noticed_within_a_second_and_so_is_its_return(
        self, sqlite_url: str
    ) -> None:
        clock, path = FakeClock(), sqlite_url.removeprefix("sqlite:///")
        store = RecordStore(sqlite_url, clock)
        store.open()
        store.add_key(key()).result(LIMIT_S)
        os.rename(path, f"{path}.kept")
        store.remove_key("a").result(LIMIT_S)  # it was looked at a moment ago
        clock.advance(CHECK_S)
        for refused in (store.add_key(key()), store.keys(UNREAD)):
            with pytest.raises(StoreFailed, match="was deleted or replaced"):
                refused.result(LIMIT_S)
        os.rename(f"{path}.kept", path)
        clock.advance(CHECK_S)
        assert store.add_key(key()).result(LIMIT_S)
        store.close()


class TestSqliteInMemory(RecordStoreContract):
    url_fixture = "memory_url"


class TestPostgres(RecordFileContract):
    url_fixture = "postgres_url"
