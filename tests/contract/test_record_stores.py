"""One suite for the records on every database they may be kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from forebay.records.keys import KeyRecord
from forebay.records.store import RecordStore

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

    def test_a_name_and_a_text_are_there_once(self, store: RecordStore) -> None:
        assert store.add_key(key()).result(LIMIT_S)
        assert not store.add_key(key(digest="1" * 64)).result(LIMIT_S)
        assert not store.add_key(key("b")).result(LIMIT_S)
        assert not store.remove_key("b").result(LIMIT_S)
        table = store.keys(UNREAD).result(LIMIT_S)
        assert table is not None
        assert table.keys == (key(),)


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


class TestSqlite(RecordFileContract):
    url_fixture = "sqlite_url"


class TestSqliteInMemory(RecordStoreContract):
    url_fixture = "memory_url"


class TestPostgres(RecordFileContract):
    url_fixture = "postgres_url"
