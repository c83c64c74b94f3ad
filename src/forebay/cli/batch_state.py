"""What is remembered of a file's batch, beside the file, so that the same command goes on.

Written as soon as the gateway has answered, and whole or not at all: a new file that takes the
place of the old.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".forebay"


class Ended(Struct, frozen=True):
    """How a batch ended, and where its answers are."""

    status: str
    total: int
    completed: int
    failed: int
    output: str | None
    """Path, relative to where the command ran."""
    errors: str | None


class BatchState(Struct, frozen=True, kw_only=True):
    """A file's batch."""

    url: str
    """The gateway that has it."""
    size: int
    """Of the file that was uploaded, in bytes."""
    sha256: str
    endpoint: str
    file_id: str
    batch_id: str | None = None
    """None between the upload and the answer to the creation."""
    ended: Ended | None = None


class StateBroken(Exception):
    """The state is there, but cannot be read; the text says what to do."""


def state_path(file: Path) -> Path:
    """Return where a file's state is kept: beside it, with `.forebay` at the end."""
    return file.with_name(file.name + SUFFIX)


def load(path: Path) -> BatchState | None:
    """Return what is remembered, if anything; raises StateBroken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StateBroken(
            f"{path} cannot be read ({error}). Remove it to begin anew; "
            "a batch that still runs is then forgotten."
        ) from None


def save(path: Path, state: BatchState) -> None:
    """Remember; what was there is replaced only when the new is safe on the disk."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
