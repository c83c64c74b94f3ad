"""When to try again, and after how long; decisions only, nothing waits here.

Tried again is only what was certainly not taken: a connection that was never made, or an answer
that says so. `x-should-retry` is obeyed first, then 429 and 503 count as "later". The pause is what
`retry-after-ms` or `Retry-After` says and up to a quarter more, never less: many clients are
refused at the same moment, and must not all come back at the same moment. Where nothing is said it
doubles from half a second, as the stock SDKs do.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from datetime import datetime

RETRY_AFTER_S_MAX = 120.0
"""The gateway never asks for more; who does is told to the caller instead of being waited for."""
JITTER = 0.25
PAUSE_S, PAUSE_S_MAX = 0.5, 8.0
LATER = (429, 503)


def is_worth_retrying(status: int, headers: Mapping[str, str]) -> bool:
    """Say whether the same request may be taken later."""
    said = headers.get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return status in LATER


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the server asks to be left alone, in seconds; None where it does not say.

    >>> retry_after_s({"retry-after-ms": "1500", "retry-after": "2"}), retry_after_s({})
    (1.5, None)
    >>> retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:28:09 GMT",
    ...                "date": "Wed, 21 Oct 2026 07:28:00 GMT"})
    9.0
    """
    in_ms = _number(headers.get("retry-after-ms"))
    if in_ms is not None:
        return in_ms / 1000
    plain = headers.get("retry-after")
    in_s = _number(plain)
    if in_s is not None or plain is None:
        return in_s
    # A date, which proxies may send, is read against the sender's own clock.
    at, now = _moment(plain), _moment(headers.get("date"))
    return max(0.0, (at - now).total_seconds()) if at and now else None


def pause_s(attempt: int, asked_s: float | None, random: random.Random) -> float | None:
    """Return the pause before attempt 1, 2, ...; None where the server asks for too much."""
    if asked_s is None:
        longest_s: float = min(PAUSE_S * 2.0 ** (attempt - 1), PAUSE_S_MAX)
        return longest_s * random.uniform(0.5, 1.0)
    if asked_s > RETRY_AFTER_S_MAX:
        return None
    return asked_s * (1 + random.uniform(0.0, JITTER))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _moment(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text or "")
    except ValueError:
        return None
