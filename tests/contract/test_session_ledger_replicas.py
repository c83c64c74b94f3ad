"""PostgreSQL: gateways that share a queue share the ledger, each with the sessions of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from forebay.errors import NotAllowed
from forebay.sessions.conversation import Message
from forebay.sessions.ledger import SessionLedger
from forebay.sessions.prompt import Prompt, Sender
from forebay.sessions.record import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 15.0  # only turns a hang into a failure
A, B, FAR = "0000000a", "0000000b", "ffffffff"


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[[str], SessionLedger]]:
    made: list[SessionLedger] = []

    def one(replica: str) -> SessionLedger:
        made.append(SessionLedger(postgres_url, replica))
        made[-1].open()
        return made[-1]

    yield one
    for ledger in made:
        ledger.close(5.0)


def add(ledger: SessionLedger, name: str) -> None:
    record = SessionRecord(name, "key", "m", None, 0, {}, (), 100.0, 100.0)
    ledger.create(record).result(LIMIT_S)


def found(ledger: SessionLedger) -> dict[str, int]:
    """Return the sessions that a gateway finds when it starts, and in which life they are."""
    return {each.id: each.life for each in ledger.recover().result(LIMIT_S)}


def test_each_finds_its_own_and_leaves_the_others_alone(
    opened: Callable[[str], SessionLedger],
) -> None:
    first, second, third = opened(A), opened(B), opened(FAR)
    add(first, "one")
    add(second, "two")
    add(third, "three")
    assert found(first) == {"one": 1}
    assert found(first) == {"one": 2}
    assert found(second) == {"two": 1}
    assert found(third) == {"three": 1}


def test_who_comes_back_under_its_name_finds_its_prompts(
    opened: Callable[[str], SessionLedger],
) -> None:
    first, second = opened(A), opened(B)
    add(first, "one")
    add(second, "two")
    prompt = Prompt("prm_1", 1, (Message("user", "hi"),), Sender(), 200.0)
    first.accept("one", prompt).result(LIMIT_S)
    first.close(LIMIT_S)
    again = opened(A)
    (record,) = again.recover().result(LIMIT_S)
    assert [each.id for each in again.load(record).result(LIMIT_S).prompts] == ["prm_1"]
    assert found(second) == {"two": 1}


def test_a_name_has_one_holder(opened: Callable[[str], SessionLedger]) -> None:
    first = opened(A)
    with pytest.raises(NotAllowed, match=r"coordination\.advertise"):
        opened(A)
    add(first, "mine")
    opened(B)
    first.close(LIMIT_S)
    assert found(opened(A)) == {"mine": 1}


def test_a_holder_refused_leaves_no_lock_behind(opened: Callable[[str], SessionLedger]) -> None:
    first = opened(A)
    for _ in range(3):
        with pytest.raises(NotAllowed):
            opened(A)
    first.close(LIMIT_S)
    opened("")  # alone: nobody may be left who shares it


def test_one_that_works_alone_and_several_do_not_mix(
    opened: Callable[[str], SessionLedger],
) -> None:
    alone = opened("")
    with pytest.raises(NotAllowed, match=r"works alone.*coordination\.url"):
        opened(A)
    alone.close(LIMIT_S)
    opened(A)
    with pytest.raises(NotAllowed, match=r"coordination\.url"):
        opened("")


def test_the_first_of_several_takes_over_what_one_alone_left(
    opened: Callable[[str], SessionLedger],
) -> None:
    alone = opened("")
    add(alone, "old")
    alone.close(LIMIT_S)
    first, second = opened(A), opened(B)
    assert found(second) == {"old": 1}
    assert found(first) == {}
    assert found(second) == {"old": 2}


def test_one_alone_goes_on_with_what_several_left(opened: Callable[[str], SessionLedger]) -> None:
    first, second = opened(A), opened(B)
    add(first, "one")
    add(second, "two")
    first.close(LIMIT_S)
    second.close(LIMIT_S)
    alone = opened("")
    assert found(alone) == {"one": 1, "two": 1}
    alone.close(LIMIT_S)
    assert found(opened(B)) == {"two": 2}  # each has its own again


def test_one_that_lost_its_connection_cannot_write_once_another_has_its_name(
    postgres_url: str, opened: Callable[[str], SessionLedger]
) -> None:
    first = opened(A)
    add(first, "before")
    engine = create_engine(
        postgres_url.replace("postgresql://", "postgresql+psycopg://", 1),
        isolation_level="AUTOCOMMIT",
    )
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    end = f"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE {others}"
    with engine.connect() as connection:
        assert connection.execute(text(end)).scalar()
    engine.dispose()
    second = opened(A)
    for _ in range(3):
        with pytest.raises(Exception, match=r"database|advertise"):
            add(first, "intruder")
    assert found(second) == {"before": 1}
    second.close(LIMIT_S)
    assert found(opened("")) == {"before": 2}  # who was refused holds nothing, either


def test_a_database_of_the_version_before_is_brought_up_to_date(
    postgres_url: str, opened: Callable[[str], SessionLedger]
) -> None:
    alone = opened("")
    add(alone, "old")
    alone.close(LIMIT_S)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE sessions DROP COLUMN replica"))
        connection.execute(text("UPDATE forebay_sessions_schema SET version = 1"))
    engine.dispose()
    assert found(opened(A)) == {"old": 1}


def test_a_file_is_its_holders_whatever_the_name_was(sqlite_url: str) -> None:
    for name in (A, B, ""):
        ledger = SessionLedger(sqlite_url, name)
        ledger.open()
        add(ledger, f"of {name}")
        ledger.close(LIMIT_S)
    ledger = SessionLedger(sqlite_url, FAR)
    ledger.open()
    assert set(found(ledger)) == {f"of {A}", f"of {B}", "of "}
    ledger.close(LIMIT_S)
