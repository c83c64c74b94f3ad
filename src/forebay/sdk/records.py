"""What a gateway says of its keys, and of what was used."""

from __future__ import annotations

from msgspec import Struct


class ApiKey(Struct, frozen=True):
    """One key, and what its holder may do; never its text."""

    name: str
    origin: str = "settings"
    """`settings` for a block of the settings file, `made` for one made at run time."""
    user: str = ""
    trust_user: bool = False
    max_priority: str = ""
    models: list[str] = []
    max_running: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    tokens_per_day: int = 0
    weight: float = 1.0
    share_prefixes: bool = False
    admin: bool = False
    created_at: str | None = None
    created_by: str | None = None


class KeyList(Struct, frozen=True):
    """What `GET /admin/keys` answers."""

    data: list[ApiKey]


class HourlyUsage(Struct, frozen=True):
    """What was used in one hour; None where it is summed up over."""

    hour: str
    key: str | None
    user: str | None
    model: str | None
    requests: int
    prompt_tokens: int
    output_tokens: int


class UsageReport(Struct, frozen=True):
    """What `GET /v1/usage` answers."""

    data: list[HourlyUsage]
