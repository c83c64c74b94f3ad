"""Keys, and what was used with them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from forebay.api.fields import (
    Count,
    RequestBody,
    ResponseBody,
    Sometimes,
    one_of,
    unchecked,
)

_Weight: TypeAlias = Annotated[float, unchecked(minimum=0.001, maximum=1_000)]
_Digest: TypeAlias = Annotated[str, unchecked(pattern="^[0-9a-fA-F]{64}$")]


class Key(ResponseBody, frozen=True):
    """One key, and what its holder may do; never its text."""

    name: str
    origin: Annotated[str, one_of("settings", "made", "unreadable")] = "settings"
    """`settings` for a block of the settings file, which is read-only here; `unreadable` for one in
    the database that is switched off because it cannot be read."""
    user: str = ""
    trust_user: bool = False
    max_priority: str = ""
    models: list[str] = []
    """Empty is all."""
    max_running: Count = 0
    """0 is no limit."""
    requests_per_minute: Count = 0
    """0 is no limit; more wait for their turn."""
    tokens_per_minute: Count = 0
    """0 is no limit; more wait for their turn."""
    tokens_per_day: Count = 0
    """0 is no limit; the day ends at 00:00 UTC."""
    weight: _Weight = 1.0
    share_prefixes: bool = False
    """Whether it uses the cached prompts of other keys that have it, too."""
    admin: bool = False
    created_at: str | None = None
    created_by: str | None = None
    """The key that made it; empty for a caller on the gateway's machine."""


class NewKey(Key, frozen=True):
    """A key that was made or renewed."""

    key: Sometimes[str] = None
    """Its text, now and never again."""


class KeyList(ResponseBody, frozen=True):
    """The keys."""

    data: list[Key]


class KeyText(RequestBody, forbid_unknown_fields=True):
    """The body of a renewal, which may be left out."""

    key_sha256: _Digest = ""
    """SHA-256 of the key's text, for callers who make that themselves; left out, the gateway makes
    one and answers with it."""


class KeyDescription(KeyText, kw_only=True, forbid_unknown_fields=True):
    """A key to be made."""

    name: Annotated[str, unchecked(pattern="^[A-Za-z0-9._-]{1,64}$")]
    user: str = ""
    trust_user: bool = False
    max_priority: str = ""
    models: list[Annotated[str, unchecked(minLength=1)]] = []
    max_running: Count = 0
    requests_per_minute: Count = 0
    tokens_per_minute: Count = 0
    tokens_per_day: Count = 0
    weight: _Weight = 1.0
    share_prefixes: bool = False
    admin: bool = False
    """The first key of a gateway without keys must be one."""


class HourlyUsage(ResponseBody, frozen=True):
    """What was used in one hour; None where it is summed up over."""

    hour: Annotated[str, unchecked(format="date-time")]
    """Its beginning."""
    key: str | None = None
    """Null where `by` sums up over it; empty for a request without a key."""
    user: str | None = None
    model: str | None = None
    """Empty for requests that never ran."""
    requests: Count = 0
    prompt_tokens: Count = 0
    output_tokens: Count = 0


class Usage(ResponseBody, frozen=True):
    """Requests and tokens by the hour."""

    data: list[HourlyUsage]
