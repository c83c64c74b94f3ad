"""Programs of their own beside a test: started, read from, killed; their log and its table."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database
from harness.preloaded import PipedProgram

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = Path(__file__).with_name("child.py")


@contextmanager
def program(url: str, log: Path, mode: str) -> Iterator[PipedProgram]:
    """Run the child; it is killed with -9 at the end, unless it has ended."""
    child = PipedProgram(CHILD, url, str(log), mode)
    try:
        yield child
    finally:
        child.kill()
        if not child.stdout.closed:
            child.communicate()


def said(child: PipedProgram) -> str:
    """Wait for the child's next line; empty when it has ended."""
    return child.stdout.readline().strip()


@contextmanager
def opened(url: str) -> Iterator[JobStore]:
    database = Database(url, JOBS)
    database.open()
    try:
        yield JobStore(database)
    finally:
        database.close()


def lines(log: Path, word: str) -> list[list[str]]:
    """Return what follows a word, line by line."""
    text = log.read_text() if log.exists() else ""
    split = [line.split() for line in text.splitlines()]
    return [line[1:] for line in split if line[0] == word]
