"""What a check of `forebay doctor` has found."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "problem"]
RUNS = "a gateway runs on"
"""How the finding about a port begins that a gateway has taken already."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    state: State
    found: str
    """What there is, in a sentence without its full stop."""
    instead: str = ""
    """What to change, where something is wrong."""


def fine(check: str, found: str) -> Finding:
    """Return that nothing is to be changed."""
    return Finding(check, "ok", found)


def warning(check: str, found: str, instead: str) -> Finding:
    """Return what will surprise somebody, but keeps nothing from working."""
    return Finding(check, "warning", found, instead)


def problem(check: str, found: str, instead: str) -> Finding:
    """Return what keeps a gateway from working."""
    return Finding(check, "problem", found, instead)
