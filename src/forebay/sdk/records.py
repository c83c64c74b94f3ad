"""What a gateway says of its keys."""

from __future__ import annotations

from msgspec import Struct


class ApiKey(Struct, frozen=True):
    """One key, and what its holder may do; never its text."""

    name: str
    origin: str = "settings"
    """`settings` for a block of the settings file, `made` for one made at run time."""
    user: str = ""
    max_priority: str = ""
    models: list[str] = []
    max_running: int = 0
    weight: float = 1.0
    admin: bool = False
    created_at: str | None = None
    created_by: str | None = None


class KeyList(Struct, frozen=True):
    """What `GET /admin/keys` answers."""

    data: list[ApiKey]
