"""Text for people, in the two languages that the page speaks."""

from __future__ import annotations

from msgspec import Struct


class Words(Struct, frozen=True):
    """The same thing said twice."""

    en: str
    ja: str


def duration(seconds: float) -> Words:
    """Say how long, as roughly as people would.

    >>> duration(40.2), duration(200), duration(7300)
    (Words(en='40 s', ja='40 秒'), Words(en='3 min', ja='3 分'), Words(en='2 h', ja='2 時間'))
    """
    if seconds < 120:
        return Words(f"{seconds:.0f} s", f"{seconds:.0f} 秒")
    if seconds < 7200:
        return Words(f"{seconds // 60:.0f} min", f"{seconds // 60:.0f} 分")
    return Words(f"{seconds // 3600:.0f} h", f"{seconds // 3600:.0f} 時間")
