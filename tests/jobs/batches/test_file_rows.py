"""Files in PostgreSQL itself: what one gateway took in, every other one finds."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from forebay.jobs.batches import file_rows
from forebay.jobs.batches.file import FileInUse, FileTooLarge
from forebay.jobs.batches.file_rows import PART_BYTES
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

from ..desk import Desk, counts, line

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def desks(postgres_url: str) -> Iterator[tuple[Desk, Desk]]:
    """Two gateways that share nothing but the database."""
    made = (Desk(postgres_url, None, "k1"), Desk(postgres_url, None, "k2"))
    yield made
    for desk in made:
        desk.close()


def parts(desk: Desk) -> int:
    return int(desk.sql("SELECT count(*) FROM file_parts")[0][0])


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, 3 * PART_BYTES + 5])
def test_a_file_comes_back_from_another_gateway_as_it_was_sent(
    desks: tuple[Desk, Desk], size: int
) -> None:
    data = random.Random(size).randbytes(size)
    upload = desks[0].files.begin()
    for start in range(0, size, 100_000):
        upload.write(data[start : start + 100_000])
    file = desks[0].files.store(upload, "", "in.jsonl", "batch")
    assert file.bytes == size
    with desks[1].files.read(file.name) as opened:
        assert opened.read() == data
        opened.seek(size // 2)
        assert opened.read(1000) == data[size // 2 : size // 2 + 1000]
        assert opened.tell() == min(size, size // 2 + 1000)


def test_a_batch_made_here_is_moved_on_and_read_there(desks: tuple[Desk, Desk]) -> None:
    here, there = desks
    filler = "x" * (PART_BYTES // 10)  # lines that lie across the ends of parts
    made = here.create([line(f"c{i}", user=filler) for i in range(25)])
    there.move_on()
    assert there.run() == 25
    here.move_on()
    done = there.get(made)
    assert counts(done) == ("completed", 25, 25, 0)
    assert [one["custom_id"] for one in there.content(done.output_file)] == [
        f"c{i}" for i in range(25)
    ]


def test_bytes_go_with_their_file_and_not_before(desks: tuple[Desk, Desk]) -> None:
    here, there = desks
    made = here.create([line("a")])
    with pytest.raises(FileInUse):
        there.files.delete(made.input_file, "")
    here.batches.cancel(made.name, "")
    assert parts(here) == 1
    with here.files.read(made.input_file) as opened:
        assert there.files.delete(made.input_file, "")
        assert parts(here) == 0
        with pytest.raises(FileNotFoundError):
            opened.read()
    with pytest.raises(FileNotFoundError):
        here.files.read(made.input_file)


def test_what_is_given_up_or_too_large_leaves_nothing(desks: tuple[Desk, Desk]) -> None:
    upload = desks[0].files.begin()
    upload.write(b"x" * (2 * PART_BYTES))
    assert parts(desks[1]) == 2
    with pytest.raises(FileTooLarge):
        upload.write(b"x", 2 * PART_BYTES)
    upload.discard()
    upload.discard()
    assert parts(desks[1]) == 0


def test_what_a_crash_left_is_removed_after_a_day_and_nothing_else(
    desks: tuple[Desk, Desk],
) -> None:
    here, there = desks
    kept = here.upload(b"kept")
    for _ in range(2):
        here.files.begin().write(b"x" * PART_BYTES)
    here.sql("UPDATE file_parts SET created_at = created_at - 90000 WHERE name = :name OR name = "
             "(SELECT max(name) FROM file_parts WHERE name != :name)", name=kept.name)  # fmt: skip
    there.files.open()
    assert parts(here) == 2, "the kept one, and one that may still be written"
    with there.files.read(kept.name) as opened:
        assert opened.read() == b"kept"
    assert file_rows.sweep(here.database, 0.0) == 1


def test_the_schema_before_gets_the_table_of_parts_and_keeps_its_jobs(postgres_url: str) -> None:
    """A program of version 1 goes on with version 2: nothing that it knows has changed."""
    old = Desk(postgres_url, None)
    made = old.create([line("a")])
    old.sql("DELETE FROM file_parts")
    old.sql("DROP TABLE file_parts")
    old.sql("UPDATE forebay_schema SET version = 1")
    new = Desk(postgres_url, None, "k2")
    assert new.sql("SELECT version FROM forebay_schema")[0][0] == JOBS.version == 7
    assert new.get(made) == made
    assert new.upload(b"x").bytes == 1
    old.close()
    new.close()


def test_two_gateways_that_upgrade_at_once_do_it_once(postgres_url: str) -> None:
    first = Database(postgres_url, JOBS)
    first.open()
    first.write(lambda c: c.execute(text("DROP TABLE file_parts")).rowcount).result()
    version = text("UPDATE forebay_schema SET version = 1")
    first.write(lambda c: c.execute(version).rowcount).result()

    others = [Database(postgres_url, JOBS) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(Database.open, others))
    for database in (first, *others):
        database.close()
