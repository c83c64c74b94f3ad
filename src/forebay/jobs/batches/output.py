"""The output files of a batch: one of answers, one of errors, each in the order of the input.

Lines are read in pages of PAGE_BYTES_MAX, with one line at least, so that 50,000 long answers are
never in memory at once. What is written depends on the rows alone: repeated after a crash it is the
same, the ids of the lines included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from sqlalchemy import func, select

from forebay.jobs.store.schema import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from forebay.jobs.batches.batch import StoredBatch
    from forebay.jobs.batches.file_rows import RowsUpload
    from forebay.jobs.batches.files import Files, FolderUpload
    from forebay.storage.database import Database

PAGE_LINES = 500
PAGE_BYTES_MAX = 4 * 1024 * 1024
FILENAMES = {"output": "{name}_output.jsonl", "error": "{name}_error.jsonl"}

_SIZE = (
    func.length(func.coalesce(jobs.c.result, ""))
    + func.length(func.coalesce(jobs.c.error, ""))
)  # fmt: skip


class _LineFailure(Struct, frozen=True):
    code: str
    message: str


class _Answer(Struct, frozen=True):
    id: str
    custom_id: str
    response: Raw | None
    error: _LineFailure | None


@dataclass(frozen=True)
class Written:
    """Files whose contents are stored, and which have no rows yet."""

    output: FolderUpload | RowsUpload | None
    error: FolderUpload | RowsUpload | None


def write(
    database: Database, files: Files, batch: StoredBatch, check_stopping: Callable[[], object]
) -> Written:
    """Write both files, leaving out an empty one; raises what `check_stopping` raises."""
    uploads: dict[str, FolderUpload | RowsUpload] = {}
    try:
        for row in _rows(database, batch.id):
            check_stopping()
            kind = "output" if row.status == "completed" else "error"
            if kind not in uploads:
                uploads[kind] = files.begin()
            uploads[kind].write(_answer(batch, row), None)
        for upload in uploads.values():
            upload.keep()
    except BaseException:
        discard(files, Written(uploads.get("output"), uploads.get("error")))
        raise
    return Written(uploads.get("output"), uploads.get("error"))


def discard(files: Files, written: Written) -> None:
    """Delete files that will have no row."""
    for upload in (written.output, written.error):
        if upload is not None:
            upload.discard()
            files.remove(upload.name)


def _rows(database: Database, batch_id: int) -> Iterator[Any]:
    last = -1
    while True:
        ends = list(_ends(database.read(partial(_sizes, batch_id, last)).result()))
        if not ends:
            return
        for end in ends:
            yield from database.read(partial(_page, batch_id, last, end)).result()
            last = end


def _sizes(batch_id: int, last: int, connection: Connection) -> list[tuple[int, int]]:
    query = (
        select(jobs.c.line, _SIZE)
        .where(jobs.c.batch_id == batch_id, jobs.c.line > last)
        .order_by(jobs.c.line)
        .limit(PAGE_LINES)
    )
    return [(int(line), int(size)) for line, size in connection.execute(query)]


def _ends(sizes: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the last line of each page, so that none is too large."""
    weight, before = 0, -1
    for line, size in sizes:
        if weight and weight + size > PAGE_BYTES_MAX:
            yield before
            weight = 0
        weight, before = weight + size, line
    if sizes:
        yield before


def _page(batch_id: int, last: int, end: int, connection: Connection) -> list[Any]:
    c = jobs.c
    query = (
        select(c.line, c.custom_id, c.status, c.result, c.error, c.error_code)
        .where(c.batch_id == batch_id, c.line > last, c.line <= end)
        .order_by(c.line)
    )
    return list(connection.execute(query))


def _answer(batch: StoredBatch, row: Any) -> bytes:
    """Return a line in the format of OpenAI; a result is JSON already, and is not parsed."""
    error = None
    if row.status != "completed":
        error = _LineFailure(row.error_code or "failed", row.error or "The request failed.")
    # In JSON, line feeds are only between tokens, where a blank is equivalent.
    response = None if row.result is None else Raw(row.result.replace("\n", " ").encode())
    mark = sha256(f"{batch.name}:{row.line}".encode()).hexdigest()[:32]
    answer = _Answer(f"batch_req_{mark}", row.custom_id, response, error)
    return msgspec.json.encode(answer) + b"\n"
