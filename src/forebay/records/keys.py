"""A key that was made while the gateway ran, as it is kept: by its digest, never by its text."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class KeyRecord(Struct, frozen=True):
    """One row of `api_keys`."""

    name: str
    sha256: str
    """Digest of the key's text, in lower-case hex."""
    settings: dict[str, Any]
    """What its holder may do, as in a `[[keys]]` block; without name and secret."""
    created_at: float
    created_by: str = ""
    """The key that made it; "" for a caller on the machine of a gateway without keys."""


class KeyTable(Struct, frozen=True):
    """All keys of the database at one moment."""

    number: int
    """Of their last change: the same number, the same keys."""
    keys: tuple[KeyRecord, ...] = ()
