"""The caller's own cap on output tokens, as far as it is believed."""

from typing import Final

from msgspec import UnsetType

OUTPUT_LIMIT_MAX: Final = 1_000_000_000


def bounded_limit(*limits: int | float | UnsetType | None) -> int:
    """Return the first limit that is given, between 0 (none) and `OUTPUT_LIMIT_MAX`.

    >>> bounded_limit(None, 5), bounded_limit(-1), bounded_limit(10**400)
    (5, 0, 1000000000)
    """
    for limit in limits:
        if type(limit) is int and 0 < limit < OUTPUT_LIMIT_MAX:
            return limit
        if limit:
            return int(min(max(limit, 0), OUTPUT_LIMIT_MAX))
    return 0
