"""What workers ask over and over must walk a partial index: what is finished costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text

from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from forebay.testing.job_store_contract import LEASE_S, letter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def store(sqlite_url: str) -> Iterator[JobStore]:
    database = Database(sqlite_url, JOBS)
    database.open()
    store = JobStore(database)
    store.add([letter(8, owner="a"), letter(9, owner="b")]).result(10)
    yield store
    database.close()


def plans(store: JobStore, ask: Callable[[JobStore], Any]) -> list[str]:
    """Return how SQLite walks the jobs table for what `ask` asks."""
    asked: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        if "FROM jobs" in statement or "UPDATE jobs" in statement:
            asked.append((statement, parameters))

    engine = store.database._engine
    event.listen(engine, "before_cursor_execute", note)
    ask(store).result(10)
    event.remove(engine, "before_cursor_execute", note)
    assert asked
    found: list[str] = []

    def explain(connection: Any) -> None:
        for statement, parameters in asked:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            found.extend(row[3] for row in rows if "jobs" in row[3])

    store.database.read(explain).result(10)
    return found


@pytest.mark.parametrize(
    ("index", "ask"),
    [
        ("jobs_in_turn", lambda store: store.claim("letter", "w", LEASE_S)),
        ("jobs_last_start", lambda store: store.claim("letter", "w", LEASE_S)),
        ("jobs_in_turn", lambda store: store.claim("letter", "w", LEASE_S, owner="a")),
        ("jobs_in_turn", lambda store: store.first_params("letter", "a")),
        ("jobs_listed", lambda store: store.depths()),  # status = 'queued' only
        ("jobs_same", lambda store: store.add([letter(1)] * 2)),
        ("jobs_same_key", lambda store: store.add([letter(1, idempotency_key="k")] * 2)),
        ("jobs_listed", lambda store: store.add([letter(2)], 10)),  # queued, no lines
        ("jobs_held", lambda store: store.heartbeat("w", LEASE_S)),
        ("jobs_listed", lambda store: store.recover(Recovery())),  # status = 'running' only
        ("jobs_listed", lambda store: store.recover(Recovery(expired_only=True))),
    ],
)
def test_what_is_asked_over_and_over_walks_its_own_index(
    store: JobStore, index: str, ask: Callable[[JobStore], Any]
) -> None:
    walked = plans(store, ask)
    assert any(f"INDEX {index} " in f"{step} " for step in walked), walked
    assert not any(step.startswith("SCAN") for step in walked), walked


def test_a_question_without_an_index_is_told_apart(store: JobStore) -> None:
    everything = text("SELECT id FROM jobs WHERE stage = 'x'")

    def ask(store: JobStore) -> Any:
        return store.database.read(lambda connection: connection.execute(everything).all())

    assert plans(store, ask) == ["SCAN jobs"]
