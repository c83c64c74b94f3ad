"""Stored files: bytes first, row last; nothing left behind, nothing beyond the bounds."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from forebay.errors import StoreFailed
from forebay.jobs.batches import files as module
from forebay.jobs.batches.batch import BatchesFull, NewBatch
from forebay.jobs.batches.file import FileInUse, FilesFull, FileTooLarge, Listing, is_name
from forebay.jobs.batches.files import Files
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

from ..desk import CHAT, Desk, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(database_url, tmp_path / "files")
    yield desk
    desk.close()


def names(desk: Desk, **wanted: object) -> list[str]:
    page = desk.files.list("", Listing(**wanted)).result()  # type: ignore[arg-type]
    assert page is not None
    return [file.name for file in page.files]


def test_a_file_is_kept_as_it_was_sent(desk: Desk) -> None:
    upload = desk.files.begin()
    for piece in (b"one\n", b"", b"\0\xff\n"):
        upload.write(piece)
    file = desk.files.store(upload, "team", "in.jsonl", "batch")
    assert (file.bytes, file.filename, file.purpose, file.owner) == (7, "in.jsonl", "batch", "team")
    assert desk.files.path(file.name).read_bytes() == b"one\n\0\xff\n"
    assert desk.files.get(file.name, "team").result() == file
    assert [path.name for path in desk.files.folder.iterdir()] == [file.name]


def test_nobody_else_sees_a_file(desk: Desk) -> None:
    file = desk.upload(b"x", "team-a")
    assert desk.files.get(file.name, "team-b").result() is None
    assert desk.files.delete(file.name, "team-b") is False
    assert desk.files.get(file.name, "team-a").result() is not None


def test_files_are_listed_from_either_end_page_by_page(desk: Desk) -> None:
    made = [desk.upload(b"x").name for _ in range(3)]
    other = desk.upload(b"x", purpose="batch_output").name
    desk.upload(b"x", "somebody else")
    assert names(desk) == [other, *reversed(made)]
    assert names(desk, order="asc") == [*made, other]
    assert names(desk, purpose="batch") == made[::-1]
    assert names(desk, limit=2) == [other, made[2]]
    assert names(desk, limit=2, after=made[2]) == [made[1], made[0]]
    assert names(desk, order="asc", after=made[1]) == [made[2], other]
    page = desk.files.list("", Listing(limit=3)).result()
    assert page is not None
    assert page.has_more
    page = desk.files.list("", Listing(limit=4)).result()
    assert page is not None
    assert not page.has_more
    assert desk.files.list("", Listing(after="file-" + "0" * 24)).result() is None


def test_what_is_given_up_leaves_nothing(desk: Desk) -> None:
    upload = desk.files.begin()
    upload.write(b"half")
    upload.discard()
    upload.discard()
    assert list(desk.files.folder.iterdir()) == []
    assert names(desk) == []


def test_a_file_that_is_too_large_is_refused_before_it_is_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = desk.files.begin()
    upload.write(b"12345678", 10)
    upload.write(b"90", 10)
    with pytest.raises(FileTooLarge):
        upload.write(b"1", 10)
    upload.discard()
    assert list(desk.files.folder.iterdir()) == []


@pytest.mark.parametrize("bound", [("OWNER_FILES_MAX", 2), ("OWNER_BYTES_MAX", 25)])
def test_an_owner_may_only_have_so_much(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
) -> None:
    monkeypatch.setattr(module, *bound)
    first, _ = desk.upload(b"x" * 10), desk.upload(b"x" * 10)
    with pytest.raises(FilesFull):
        desk.upload(b"x" * 10)
    assert len(list(desk.files.folder.iterdir())) == 2
    desk.upload(b"x" * 10, "somebody else")
    assert desk.files.delete(first.name, "")
    desk.upload(b"x" * 10)


def test_no_race_between_gateways_exceeds_the_bounds(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OWNER_FILES_MAX", 7)
    monkeypatch.setattr("forebay.jobs.batches.service.OPEN_MAX", 3)
    desks = [Desk(postgres_url, tmp_path / "files", f"k{i}") for i in range(2)]

    def ten_files(desk: Desk) -> int:
        return sum(is_taken(lambda: desk.upload(b"x")) for _ in range(10))

    def ten_batches(desk: Desk) -> int:
        new = NewBatch(name, CHAT)
        return sum(is_taken(lambda: desk.batches.create("", new)) for _ in range(10))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(ten_files, [*desks, *desks])) == 7
        name = names(desks[0])[0]
        assert sum(threads.map(ten_batches, [*desks, *desks])) == 3
    for desk in desks:
        desk.close()


def is_taken(work: Callable[[], object]) -> bool:
    try:
        work()
    except (FilesFull, BatchesFull):
        return False
    return True


def test_deleting_twice_is_as_good_as_once(desk: Desk) -> None:
    file = desk.upload(b"x")
    assert desk.files.delete(file.name, "") is True
    assert desk.files.delete(file.name, "") is False
    assert list(desk.files.folder.iterdir()) == []


def test_a_file_is_not_deleted_while_a_batch_needs_it(desk: Desk) -> None:
    batch = desk.create([line("a")])
    with pytest.raises(FileInUse):
        desk.files.delete(batch.input_file, "")
    desk.batches.cancel(batch.name, "")
    assert desk.files.delete(batch.input_file, "") is True


def test_a_start_removes_what_a_crash_left_and_nothing_else(desk: Desk, sqlite_url: str) -> None:
    if not desk.database.is_sqlite:
        pytest.skip("several gateways may be writing there")
    kept = desk.upload(b"x").name
    begun = desk.files.begin()
    begun.write(b"half")
    renamed = desk.files.begin()
    renamed.keep()
    (desk.files.folder / "README").write_text("not ours")
    desk.files.open()
    assert {path.name for path in desk.files.folder.iterdir()} == {kept, "README"}
    begun.discard()


def test_in_a_shared_folder_only_what_is_old_is_removed(postgres_url: str, tmp_path: Path) -> None:
    desk = Desk(postgres_url, tmp_path / "files")
    try:
        young, old = desk.files.begin(), desk.files.begin()
        old.write(b"half")
        then = os.stat(desk.files.folder).st_mtime - module.ORPHAN_S - 60
        os.utime(desk.files.folder / f"{old.name}.part", (then, then))
        desk.files.open()
        assert [path.name for path in desk.files.folder.iterdir()] == [f"{young.name}.part"]
        young.discard()
        old.discard()
    finally:
        desk.close()


def test_a_row_that_cannot_be_written_leaves_no_file_that_a_start_does_not_remove(
    desk: Desk,
) -> None:
    upload = desk.files.begin()
    desk.database.close()
    with pytest.raises(StoreFailed):
        desk.files.store(upload, "", "f", "batch")
    desk.database.open()
    assert names(desk) == []
    if desk.database.is_sqlite:
        desk.files.open()
        assert list(desk.files.folder.iterdir()) == []


def test_the_folder_is_beside_the_database(sqlite_url: str, tmp_path: Path) -> None:
    assert Files(Database(sqlite_url, JOBS)).folder == tmp_path / "jobs.db.files"


def test_a_database_in_memory_has_a_folder_that_goes_with_it() -> None:
    database = Database("sqlite://", JOBS)
    database.open()
    files = Files(database)
    files.open()
    folder = files.folder
    assert folder.is_dir()
    files.close()
    files.close()
    database.close()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_said_to_be_the_trouble(
    sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreFailed, match="taken"):
        Files(Database(sqlite_url, JOBS), tmp_path / "taken").open()


@pytest.mark.parametrize("name", ["", "file-1", "../../etc/passwd", "file-" + "G" * 24, "file-\0"])
def test_only_names_that_we_make_are_looked_for(name: str) -> None:
    assert not is_name(name)
