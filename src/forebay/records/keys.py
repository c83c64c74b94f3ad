"""A key that was made while the gateway ran, as it is kept: by its digest, never by its text."""

from __future__ import annotations

import secrets
from typing import Any, Final

from msgspec import Struct

REVOKED_MAX: Final = 10_000
"""Revoked keys that are remembered; of those before, what is left in their name only waits."""
_DRAWN: Final = "key:"  # no name may hold a colon


class KeyRecord(Struct, frozen=True):
    """One row of `api_keys`."""

    name: str
    sha256: str
    """Digest of the key's text, in lower-case hex."""
    settings: dict[str, Any] | None
    """What its holder may do, as in a `[[keys]]` block; without name and secret. None where the
    row cannot be read."""
    created_at: float
    created_by: str = ""
    """The key that made it; "" for a caller on the machine of a gateway without keys."""
    owner: str = ""
    """Whom everything made with it belongs to."""


def new_owner() -> str:
    """Draw the id of an owner: no name of a key, and never drawn twice."""
    return f"{_DRAWN}{secrets.token_hex(12)}"


class KeyTable(Struct, frozen=True):
    """All keys of the database at one moment."""

    number: int
    """Of their last change: the same number, the same keys."""
    keys: tuple[KeyRecord, ...] = ()
    revoked: dict[str, str] = {}
    """The names of the keys that were revoked, by owner; the last REVOKED_MAX of them."""
