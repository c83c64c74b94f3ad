"""A book that PostgreSQL itself keeps of every change of a job, and the check of what it says.

The gateways know nothing of it: a trigger writes each change of status or result, whoever makes it
and however. So whatever a gateway, a frozen one or one without fences did, it is written here.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from msgspec import Struct
from sqlalchemy import create_engine, text

TRIGGER = """
CREATE TABLE book (
    n bigserial PRIMARY KEY, id bigint NOT NULL, line text, was text, now text NOT NULL,
    fence int NOT NULL, attempt int NOT NULL, result text, code text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' OR OLD.status <> NEW.status
        OR OLD.result IS DISTINCT FROM NEW.result OR OLD.error IS DISTINCT FROM NEW.error THEN
        INSERT INTO book (id, line, was, now, fence, attempt, result, code)
        VALUES (NEW.id, NEW.custom_id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END,
                NEW.status, NEW.fence, NEW.attempt, NEW.result, NEW.error_code);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER note_change AFTER INSERT OR UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION note_change();
"""
ENDED = ("completed", "failed", "cancelled")


class Entry(Struct, frozen=True):
    """One change."""

    id: int
    line: str | None
    was: str | None
    now: str
    fence: int
    attempt: int
    result: str | None
    code: str | None


class Wrong(AssertionError):
    """What must never happen has."""


class Ledger:
    """Looks at the database from outside."""

    def __init__(self, url: str) -> None:
        address = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = create_engine(address, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def begin(self) -> None:
        """Keep the book from now on; the gateways have made their tables."""
        self.ask(TRIGGER)

    def ask(self, statement: str, **values: Any) -> list[Any]:
        with self._engine.connect() as connection:
            done = connection.execute(text(statement), values)
            return list(done) if done.returns_rows else []

    def unended(self) -> int:
        """Return how many jobs have not come to an end."""
        found = self.ask("SELECT count(*) FROM jobs WHERE status IN ('queued', 'running')")
        return int(found[0][0])

    def entries(self) -> dict[int, list[Entry]]:
        """Return what happened to each job, in order."""
        by_job: defaultdict[int, list[Entry]] = defaultdict(list)
        rows = self.ask(
            "SELECT id, line, was, now, fence, attempt, result, code FROM book ORDER BY n"
        )
        for row in rows:
            by_job[row[0]].append(Entry(*row))
        return by_job

    def close(self) -> None:
        self._engine.dispose()


def check(book: dict[int, list[Entry]], accepted: set[int], attempts: int) -> dict[int, Entry]:
    """Return how each job ended; raises Wrong where one was lost, or ended twice.

    No job is retried by hand here, so nothing may follow an end.
    """
    lost = accepted - book.keys()
    if lost:
        raise Wrong(f"accepted, and not there: {sorted(lost)}")
    return {job_id: _check_one(entries, attempts) for job_id, entries in book.items()}


def _check_one(entries: list[Entry], attempts: int) -> Entry:
    first, last, fence = entries[0], entries[-1], 0
    if (first.was, first.now) != (None, "queued"):
        raise Wrong(f"job {first.id} began as {first.now}")
    for before, entry in pairwise(entries):
        fence += entry.now == "running"
        _check_step(before, entry, fence)
    if last.now not in ENDED:
        raise Wrong(f"job {first.id} has not ended: {last.now}")
    if max(entry.attempt for entry in entries) > attempts:
        raise Wrong(f"job {first.id} was tried more than {attempts} times")
    if last.code == "dead_letter" and last.attempt != attempts:
        raise Wrong(f"job {first.id} was given up after {last.attempt} attempts")
    return last


def _check_step(before: Entry, entry: Entry, fence: int) -> None:
    if before.now in ENDED:
        raise Wrong(f"job {entry.id} was {before.now}, and then {entry.now} by {entry.fence}")
    if entry.was != before.now:
        raise Wrong(f"job {entry.id} was {before.now}, not {entry.was}")
    if entry.fence != fence:
        raise Wrong(f"job {entry.id}: claim {entry.fence} spoke, and {fence} holds it")
