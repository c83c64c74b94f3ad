"""Priority classes by name: how a header or a setting becomes a class, and a class a rank."""

from collections.abc import Sequence

NORMAL = "normal"


def parse_priority(text: str | None, priorities: Sequence[str] = ("high", "normal", "low")) -> str:
    """Return the class that a header asks for; case and blanks do not matter, nonsense is normal.

    >>> [parse_priority(text) for text in ("high", "HIGH", " High ", "low")]
    ['high', 'high', 'high', 'low']
    >>> [parse_priority(text) for text in ("", "urgent", None)]
    ['normal', 'normal', 'normal']
    """
    name = (text or "").strip().lower()
    return name if name in priorities else NORMAL


def capped_priority(asked: str, cap: str, priorities: Sequence[str]) -> str:
    """Return `asked`, but never one more urgent than `cap`.

    >>> capped_priority("high", "normal", ("high", "normal", "low"))
    'normal'
    """
    ranks = {name: rank for rank, name in enumerate(priorities)}
    return max(asked, cap, key=lambda name: ranks.get(name, 0))
