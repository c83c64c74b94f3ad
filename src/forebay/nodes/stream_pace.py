"""How much slower streams write with more at once: known after some tokens, not after an answer.

`slot_limit` compares whole answers. That is exact, and late: at 16 at once it takes some 30 of
them to see that 16 are too many. But all streams that run say so together, within a second, by how
many bytes they have brought since; and most of them ran before the limit rose, so that each can be
compared with itself, or with others of its model.

A *window* is a time in which the limit was reached. It ends when half of its streams have written
`WINDOW_BYTES` each. The windows before a rise are the *base* of those after it.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from forebay.nodes.slot_rounds import TINY, deviation, middle

if TYPE_CHECKING:
    from collections.abc import Sequence

Stream: TypeAlias = tuple[str, str, float, float]
"""One that has begun: its model and name, the bytes that came of it, when the last of them did."""
Key: TypeAlias = tuple[str, str]
"""Model and name."""

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
    >>> three = lambda done, at_s: [("llama", name, done, at_s) for name in "abc"]
    >>> [pace.note(three(done, at_s), 3) for done, at_s in ((0, 0.0), (5000, 1.0))]
    [None, None]
    >>> pace.rebase()
    >>> found = [pace.note(three(done, at_s), 3) for done, at_s in ((5000, 1.0), (10_000, 3.0))]
    >>> found[0], round(found[1].log, 3), found[1].error
    (None, 0.693, 0.0)
    """

    def __init__(self) -> None:
        self._marks: dict[Key, tuple[float, float]] = {}  # where streams were as a window began
        self._paces: dict[Key, float] = {}  # in the last one: the logarithm of bytes a second
        self._base: dict[Key, float] = {}

    def rebase(self) -> None:
        """Take what was seen so far as the pace at the limit before: it changes now."""
        self._base, self._paces, self._marks = self._paces, {}, {}

    def note(self, streams: Sequence[Stream], slots: int) -> Slowdown | None:
        """Take all streams that have begun; return what a window says that ends with this."""
        if len(streams) < FULL * slots:
            self._marks = {}
            return None
        marks, grown = self._marks, []
        for model, name, done, heard_s in streams:
            if (key := (model, name)) in marks:
                begun, since_s = marks[key]
                grown.append((done - begun, heard_s - since_s, key))
        grown.sort()
        is_short = len(grown) < min(STREAMS_MIN, slots)
        if not is_short and grown[len(grown) // 2][0] < WINDOW_BYTES:
            return None
        self._marks = {(model, name): (done, heard_s) for model, name, done, heard_s in streams}
        if is_short:  # most of its streams have ended
            return None
        paces = {
            key: log(done / took_s)
            for done, took_s, key in grown
            if done > 0.0 and took_s > TINY  # one that began anew elsewhere is back to nothing
        }
        self._paces |= paces
        for key in list(self._paces)[:-PACES_MAX]:
            del self._paces[key]
        return self._compare(paces)

    def _compare(self, paces: dict[Key, float]) -> Slowdown | None:
        """Return how much slower these are: than themselves before, if enough of them ran then."""
        pairs = [self._base[key] - pace for key, pace in paces.items() if key in self._base]
        if len(pairs) >= PAIRS_MIN:
            return Slowdown(middle(pairs), deviation(pairs) / sqrt(len(pairs)))
        by_model: dict[str, list[float]] = {}
        for (model, _), pace in self._base.items():
            by_model.setdefault(model, []).append(pace)
        usual = {model: middle(some) for model, some in by_model.items()}
        slower = [usual[model] - pace for (model, _), pace in paces.items() if model in usual]
        if len(self._base) < STREAMS_MIN or 2 * len(slower) <= len(paces):
            return None  # too few, or most are of models that did not run before
        apart = [pace - usual[model] for (model, _), pace in self._base.items()]
        error = deviation(apart) * sqrt(1.0 / len(apart) + 1.0 / len(slower))
        return Slowdown(middle(slower), error)
