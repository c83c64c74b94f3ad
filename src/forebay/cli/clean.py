"""Text from elsewhere, made fit for a terminal: a name must not be able to steer it."""

from __future__ import annotations

import unicodedata


def printable(text: object) -> str:
    """Return text that a node or gateway gave us, fit for a terminal and for one line.

    >>> printable("m\\x1b[2J")
    'm?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def harmless(text: str) -> str:
    """Return what a model wrote, fit for a terminal: its lines and letters, no control codes.

    >>> harmless("two\\nlines\\x1b[2J")
    'two\\nlines?[2J'
    """
    if text.isprintable():
        return text
    return "".join("?" if _is_control(letter) else letter for letter in text)


def _is_control(letter: str) -> bool:
    """Say whether it steers a terminal, or is half a letter, which none can write."""
    return letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cs")
