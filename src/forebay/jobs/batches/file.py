"""A stored file as callers see it, its bounds, and what may be wrong with one."""

from __future__ import annotations

import re
import secrets
from typing import Literal

from msgspec import Struct

from forebay.errors import NotAllowed

FILE_BYTES_MAX = 200 * 1024 * 1024
"""What one file may weigh: what OpenAI takes for a batch."""
OWNER_FILES_MAX = 10_000
OWNER_BYTES_MAX = 10 * 1024**3
LIST_MAX = 10_000

_NAME = re.compile(r"file-[0-9a-f]{24}")


class FileTooLarge(NotAllowed):
    """The file is larger than a file may be."""

    code = "file_too_large"


class FilesFull(NotAllowed):
    """The owner has as many files, or as much in them, as one may have."""

    code = "files_full"


class FileInUse(NotAllowed):
    """An unfinished batch still needs the file."""

    code = "conflict"


class StoredFile(Struct, frozen=True):
    """One row."""

    id: int
    name: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: float


class Listing(Struct, frozen=True):
    """Which of an owner's files are asked for."""

    purpose: str | None = None
    limit: int = LIST_MAX
    after: str | None = None
    """The name of the last one seen."""
    order: Literal["asc", "desc"] = "desc"


class Page(Struct, frozen=True):
    """Some of an owner's files."""

    files: list[StoredFile]
    has_more: bool


def new_name() -> str:
    """Return a name that no file has."""
    return f"file-{secrets.token_hex(12)}"


def is_name(text: str) -> bool:
    """Say whether a file could have this name; nothing else is looked up."""
    return _NAME.fullmatch(text) is not None
