"""Text from elsewhere, made fit for a terminal: a name must not be able to steer it."""

from __future__ import annotations

import re

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What steers a terminal, but for lines and tabs; and halves of letters, which none can write."""


def printable(text: object) -> str:
    """Return text that a node or gateway gave us, fit for a terminal and for one line.

    >>> printable("m\\x1b[2J")
    'm?[2J'
    """
    words = str(text)
    if words.isprintable():
        return words
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def harmless(text: str) -> str:
    """Return what a model wrote, fit for a terminal: its lines and letters, no control codes.

    >>> harmless("two\\nlines\\x1b[2J")
    'two\\nlines?[2J'
    """
    return CONTROLS.sub("?", text)


def short(seconds: float) -> str:
    """Return a duration for a person.

    >>> short(0.25), short(61), short(7300), short(200_000)
    ('0.2 s', '1 min 1 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole, (60, "min"), (1, "s"))
    if whole < 86_400:
        return _two(whole, (3600, "h"), (60, "min"))
    return _two(whole, (86_400, "d"), (3600, "h"))


def _two(seconds: int, big: tuple[int, str], small: tuple[int, str]) -> str:
    rest = seconds % big[0] // small[0]
    return f"{seconds // big[0]} {big[1]}" + (f" {rest} {small[1]}" if rest else "")


def speed(per_second: float) -> str:
    """Return how fast things are done, for a person.

    >>> speed(12.34), speed(0.5), speed(0)
    ('12.3/s', '30/min', '0/min')
    """
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{per_second * 60:.3g}/min"
