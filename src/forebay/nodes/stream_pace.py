"""How much slower streams write with more at once: known after some tokens, not after an answer.

`slot_limit` compares whole answers. That is exact, and late: at 16 at once it takes some 30 of
them to see that 16 are too many. But all streams that run say so together, within a second, by how
many bytes they have brought since; and most of them ran before the limit rose, so that each can be
compared with itself.

A *window* is a time in which the limit was reached. It ends when half of its streams have written
`WINDOW_BYTES` each. The windows before a rise are the *base* of those after it.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from forebay.nodes.slot_rounds import TINY, deviation, middle

if TYPE_CHECKING:
    from collections.abc import Sequence

Stream: TypeAlias = tuple[str, float, float]
"""One that has begun: its name, the bytes that came of it, and when the last of them did."""

WINDOW_BYTES: Final = 2048
"""Some 10 pieces of a stream of chat."""
FULL: Final = 0.9
"""The share of the limit that must have begun for it to count as reached."""
STREAMS_MIN: Final = 3
"""Fewer say nothing, unless the limit is lower than that."""
PAIRS_MIN: Final = 2
"""Streams that can be compared with themselves: fewer are not worth more than all others."""
PACES_MAX: Final = 256


class Slowdown(NamedTuple):
    """How much longer a byte takes than at the limit before: a logarithm, and its error."""

    log: float
    error: float


class StreamPace:
    """The pace of streams at one limit, against the one before.

    >>> pace = StreamPace()
    >>> three = lambda done, at_s: [(name, done, at_s) for name in "abc"]
    >>> [pace.note(three(done, at_s), 3) for done, at_s in ((0, 0.0), (5000, 1.0))]
    [None, None]
    >>> pace.rebase()
    >>> found = [pace.note(three(done, at_s), 3) for done, at_s in ((5000, 1.0), (10_000, 3.0))]
    >>> found[0], round(found[1].log, 3), found[1].error
    (None, 0.693, 0.0)
    """

    def __init__(self) -> None:
        self._marks: dict[str, tuple[float, float]] = {}  # where streams were as a window began
        self._paces: dict[str, float] = {}  # in the last one: the logarithm of bytes a second
        self._base: dict[str, float] = {}

    def rebase(self) -> None:
        """Take what was seen so far as the pace at the limit before: it changes now."""
        self._base, self._paces, self._marks = self._paces, {}, {}

    def note(self, streams: Sequence[Stream], slots: int) -> Slowdown | None:
        """Take all streams that have begun; return what a window says that ends with this."""
        if len(streams) < FULL * slots:
            self._marks = {}
            return None
        marks, grown = self._marks, []
        for name, done, heard_s in streams:
            if name in marks:
                begun, since_s = marks[name]
                grown.append((done - begun, heard_s - since_s, name))
        grown.sort()
        is_short = len(grown) < min(STREAMS_MIN, slots)
        if not is_short and grown[len(grown) // 2][0] < WINDOW_BYTES:
            return None
        self._marks = {name: (done, heard_s) for name, done, heard_s in streams}
        if is_short:  # most of its streams have ended
            return None
        paces = {
            name: log(done / took_s)
            for done, took_s, name in grown
            if done > 0.0 and took_s > TINY  # one that began anew elsewhere is back to nothing
        }
        self._paces |= paces
        for name in list(self._paces)[:-PACES_MAX]:
            del self._paces[name]
        return self._compare(paces)

    def _compare(self, paces: dict[str, float]) -> Slowdown | None:
        """Return how much slower these are: than themselves before, if enough of them ran then."""
        base = list(self._base.values())
        pairs = [self._base[name] - pace for name, pace in paces.items() if name in self._base]
        if len(pairs) >= PAIRS_MIN:
            return Slowdown(middle(pairs), deviation(pairs) / sqrt(len(pairs)))
        if len(base) < STREAMS_MIN or not paces:
            return None
        error = deviation(base) * sqrt(1.0 / len(base) + 1.0 / len(paces))
        return Slowdown(middle(base) - middle(list(paces.values())), error)
