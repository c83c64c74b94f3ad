"""PostgreSQL: who has lost the lock on the ledger cannot write to it, and errors name no text."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from forebay.errors import ForebayError
from forebay.sessions.conversation import Message
from forebay.sessions.ledger import SessionLedger
from forebay.sessions.prompt import Prompt, Sender, TurnResult
from forebay.sessions.record import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 15.0  # only turns a hang into a failure


@pytest.fixture
def new_ledger(postgres_url: str) -> Iterator[Callable[[], SessionLedger]]:
    made: list[SessionLedger] = []

    def one() -> SessionLedger:
        made.append(SessionLedger(postgres_url))
        return made[-1]

    yield one
    for ledger in made:
        ledger.close(5.0)


def terminate_all(postgres_url: str) -> None:
    """End every connection, as a restart or a failover of the server does."""
    address = postgres_url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    end = f"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE {others}"
    with engine.connect() as connection:
        assert connection.execute(text(end)).scalar()
    engine.dispose()


def record(name: str) -> SessionRecord:
    return SessionRecord(name, "key", "m", None, 0, {}, (), 100.0, 100.0)


def writes(ledger: SessionLedger, name: str) -> bool:
    """Try to write, again where a connection turns out to be gone; return whether it worked."""
    for _ in range(3):
        try:
            ledger.create(record(name)).result(LIMIT_S)
        except ForebayError:
            continue
        return True
    return False


def test_one_that_lost_its_connection_cannot_write_while_another_holds_the_ledger(
    postgres_url: str, new_ledger: Callable[[], SessionLedger]
) -> None:
    first, second = new_ledger(), new_ledger()
    first.open()
    assert writes(first, "before")
    terminate_all(postgres_url)
    second.open()
    assert writes(second, "mine")
    assert not writes(first, "intruder")
    found = {each.id for each in second.recover().result(LIMIT_S)}
    assert found == {"before", "mine"}
    second.close(LIMIT_S)
    assert writes(first, "after")


def test_one_that_lost_its_connection_goes_on_where_nobody_else_came(
    postgres_url: str, new_ledger: Callable[[], SessionLedger]
) -> None:
    first, second = new_ledger(), new_ledger()
    first.open()
    terminate_all(postgres_url)
    assert writes(first, "again")
    with pytest.raises(ForebayError):
        second.open()
    assert writes(first, "still")


def test_an_error_of_a_write_says_nothing_of_what_was_written(
    postgres_url: str, new_ledger: Callable[[], SessionLedger]
) -> None:
    ledger = new_ledger()
    ledger.open()
    ledger.create(record("ses_1")).result(LIMIT_S)
    prompt = Prompt("prm_1", 1, (Message("user", "SECRET"),), Sender(), 200.0)
    ledger.accept("ses_1", prompt).result(LIMIT_S)
    prompt.status, prompt.result = "completed", TurnResult("SECRET")
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        connection.execute(text("LOCK TABLE session_prompts IN ACCESS EXCLUSIVE MODE"))
        writes = (ledger.end(prompt, 1, 210.0), ledger.accept("ses_1", prompt))
        errors = [write.exception(LIMIT_S) for write in writes]
    engine.dispose()
    for error in errors:
        assert isinstance(error, ForebayError)
        assert "SECRET" not in "".join(traceback.format_exception(error))
