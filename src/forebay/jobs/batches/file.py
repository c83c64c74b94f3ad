"""A stored file, its limits and errors."""

from __future__ import annotations

import re
import secrets
from typing import Literal

from msgspec import Struct

from forebay.errors import NotAllowed

FILE_BYTES_MAX = 200 * 1024 * 1024
"""The limit of OpenAI for a batch."""
OWNER_FILES_MAX = 10_000
OWNER_BYTES_MAX = 10 * 1024**3
LIST_MAX = 10_000

_NAME = re.compile(r"file-[0-9a-f]{24}")


class FileTooLarge(NotAllowed):
    """The file exceeds FILE_BYTES_MAX."""

    code = "file_too_large"


class FilesFull(NotAllowed):
    """The owner has reached OWNER_FILES_MAX or OWNER_BYTES_MAX."""

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
    """A query for an owner's files."""

    purpose: str | None = None
    limit: int = LIST_MAX
    after: str | None = None
    """The name of the last file of the previous page."""
    order: Literal["asc", "desc"] = "desc"


class Page(Struct, frozen=True):
    """One page of an owner's files."""

    files: list[StoredFile]
    has_more: bool


def new_name() -> str:
    """Return a unique name."""
    return f"file-{secrets.token_hex(12)}"


def is_name(text: str) -> bool:
    """Say whether a text has the form of a file's id; nothing else is looked up."""
    return _NAME.fullmatch(text) is not None
