"""What the page says about an error code: whose matter it is, and what to do, in both languages."""

from __future__ import annotations

from functools import cache
from typing import Final

from forebay.dashboard.problems import Remedy
from forebay.dashboard.words import Words
from forebay.gateway.errors.codes import CODES

GOOD_ENDS: Final = frozenset({"served"})
"""Outcomes that are no problem."""

_PASSED_ON: Final = Remedy(
    "caller",
    Words(
        "The node itself answered with an error (a 4xx or 5xx of its own), and that was passed on.",
        "ノード自身がエラー (4xx または 5xx) を返し、その応答をそのまま返しました。",
    ),
)


@cache
def remedy_of(code: str) -> Remedy:
    """Return what the page says about a code."""
    known = CODES.get(code)
    if known is None:  # `passed_through`: the only outcome that is no code of ours
        return _PASSED_ON
    japanese = known.hint_japanese or known.japanese  # where the message has said it all
    words = Words(known.remedy.replace("`", ""), japanese.replace("`", ""))
    return Remedy(_kind(code, known.status), words)


def _kind(code: str, status: int) -> str:
    """Say whose matter it is: the queue's, a node's or ours, or the caller's."""
    if status in (429, 503) or code == "queue_timeout":
        return "error" if code == "store_unavailable" else "rejection"
    return "error" if status >= 500 else "caller"
