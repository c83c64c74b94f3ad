"""Amounts in few letters: durations, counts, bytes, shares. None is what is not known."""

from __future__ import annotations

NOTHING = "-"
GIB = 2**30
DAYS_MAX = 9999


def brief(seconds: float | None) -> str:
    """Return a duration in at most six letters.

    >>> [brief(s) for s in (0.25, 12.4, 812.2, 7300, 200_000, None)]
    ['0.2 s', '12 s', '14 min', '2 h', '2 d', '-']
    """
    if seconds is None:
        return NOTHING
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{min(DAYS_MAX, seconds / 86_400):.0f} d"


def counted(number: float) -> str:
    """Return a count in at most five letters, a sign aside.

    >>> [counted(n) for n in (0, 9999, 12_345, 4_500_000, 10**15, 2.5)]
    ['0', '9999', '12.3k', '4.5M', '>999G', '2.5']
    """
    if number < 0:
        return f"-{counted(-number)}"
    if number < 9999.5:
        return f"{number:.1f}".removesuffix(".0") if number < 100 else f"{number:.0f}"
    for letter in "kMG":
        number /= 1000
        if number < 999.5:
            return f"{number:.1f}".removesuffix(".0")[:4].removesuffix(".") + letter
    return ">999G"


def memory(used: float | None, total: float | None) -> str:
    """Return how much of a memory is taken, in GiB.

    >>> memory(9_123_456_789, 25_769_803_776), memory(None, 25_769_803_776), memory(None, None)
    ('8.5/24G', '24G', '-')
    """
    if total is None and used is None:
        return NOTHING
    parts = [_gib(amount) for amount in (used, total) if amount is not None]
    return "/".join(parts) + "G"


def _gib(amount: float) -> str:
    gib = max(0.0, amount) / GIB
    return f"{gib:.1f}".removesuffix(".0") if gib < 10 else counted(round(gib))


def share(part: float | None) -> str:
    """Return a share of one as percent.

    >>> share(0.931), share(None)
    ('93%', '-')
    """
    return NOTHING if part is None else f"{min(9.99, max(0.0, part)):.0%}"


def plural(number: float, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> plural(1, "request"), plural(0, "batch", "batches")
    ('1 request', '0 batches')
    """
    return f"{counted(number)} {one if number == 1 else many or one + 's'}"
