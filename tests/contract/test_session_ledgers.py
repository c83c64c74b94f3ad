"""One suite for the ledger of sessions on every database it may be kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.sessions.ledger import SessionLedger
from forebay.testing.session_ledger_contract import SessionLedgerContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def open_ledger(request: pytest.FixtureRequest) -> Iterator[Callable[[], SessionLedger]]:
    url = str(request.getfixturevalue(request.cls.url_fixture))
    opened: list[SessionLedger] = []

    def open_one() -> SessionLedger:
        ledger = SessionLedger(url)
        ledger.open()
        opened.append(ledger)
        return ledger

    yield open_one
    for ledger in opened:
        ledger.close(5.0)


@pytest.fixture
def ledger(open_ledger: Callable[[], SessionLedger]) -> SessionLedger:
    return open_ledger()


class TestSqlite(SessionLedgerContract):
    url_fixture = "sqlite_url"
    many = True


class TestSqliteInMemory(SessionLedgerContract):
    url_fixture = "memory_url"


class TestPostgres(SessionLedgerContract):
    url_fixture = "postgres_url"
    many = True
