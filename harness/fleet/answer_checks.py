"""Every request is answered, once: what the clients alone can tell."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from harness.fleet.journal import Asked, Journal, Missed, Window

Deaths: TypeAlias = Mapping[int, Sequence[tuple[float, float]]]
"""By gateway, from when it was killed to when it was gone: its port is open until then."""
REFUSED_BRIEFLY = frozenset({429, 503, 504})
"""Answers that say "later": the queue is full, there is no leader yet, it took too long."""


def answered_twice(journal: Journal) -> list[Asked]:
    """Return the requests that got more than one answer."""
    return [one for one in journal.asked if one.answers > 1]


def mixed_up(journal: Journal) -> list[Asked]:
    """Return the requests that got the answer to another one."""
    return [one for one in journal.asked if one.foreign]


def without_answer(journal: Journal, deaths: Deaths) -> list[Asked]:
    """Return the requests that got none, though their gateway lived and their client stayed.

    A client that a gateway had when it was killed, or that came to its door while it was away, sees
    its connection break at once, which is all that it can be told.
    """
    return [
        one
        for one in journal.asked
        if not one.status and not one.left and not _died(one, deaths.get(one.via, ()))
    ]


def _died(one: Asked, deaths: Sequence[tuple[float, float]]) -> bool:
    if one.code == "refused":  # nobody listened, so nothing was accepted
        return True
    dying = any(one.sent_s <= gone_s and killed_s <= one.ended_s for killed_s, gone_s in deaths)
    return dying and one.code == "broken"


def silent_gateways(journal: Journal, away: list[tuple[int, float, float]]) -> list[Missed]:
    """Return when a gateway did not answer `/health`, though it was neither dead nor frozen.

    `away` says which gateway was, from when to when.
    """
    return [
        one
        for one in journal.missed
        if not any(
            one.gateway == gateway and one.asked_s <= to_s and from_s <= one.given_up_s
            for gateway, from_s, to_s in away
        )
    ]


def errors_outside(journal: Journal, windows: list[Window]) -> list[Asked]:
    """Return the answers other than 200 to requests no part of which was in one of the windows."""
    return [
        one
        for one in journal.asked
        if one.status not in (0, 200) and not _touches(one.sent_s, one.ended_s, windows)
    ]


def odd_errors(journal: Journal) -> list[Asked]:
    """Return the answers that are an error, and not one that says "later": wrong at any time."""
    return [one for one in journal.asked if one.status not in (0, 200, *REFUSED_BRIEFLY)]


def _touches(from_s: float, to_s: float, windows: list[Window]) -> bool:
    return any(window.from_s <= to_s and from_s <= window.to_s for window in windows)
