"""How streams begin once the limit of a node has been raised, for `slot_limit`.

A first byte that takes clearly longer than usual is late: its request seems to wait inside the
engine. But engines may read prompts one after the other. Of those that were sent at once, the tenth
then takes ten times as long; and any takes as long as the prompts together that were read since it
was sent. Where these would have taken clearly longer, they were read at the same time.
"""

from __future__ import annotations

from collections import deque
from math import exp, log
from typing import TYPE_CHECKING, Final, TypeAlias

from forebay.nodes.known_rounds import FIRST_SAMPLES
from forebay.nodes.slot_rounds import LATE, TINY, Round, middle

if TYPE_CHECKING:
    from forebay.nodes.known_rounds import KnownRounds
    from forebay.nodes.slot_rounds import Costs

Silent: TypeAlias = tuple[str, int, float]
"""A stream that has not begun: its model, the tokens of its prompt, and when it was sent."""

KEPT: Final = 256
"""Of first bytes: a limit that is never reached may be searched for ever."""
PACE_SAMPLES: Final = 16
"""What a round counts for that follows from the pace of streams, before any has ended."""
IN_TURN_MIN: Final = 0.75
IN_TURN_MAX: Final = 1.1
"""How long prompts take that are read one after the other, against what is usual for each."""


class FirstBytes:
    """The first bytes of streams that were sent since the limit was set.

    >>> first = FirstBytes(slots=4)
    >>> for took_s in (0.1, 0.2, 0.5):
    ...     first.note(took_s, usual_s=0.1, is_late=took_s > 0.3)
    >>> first.begun, first.late, first.on_time
    (3, 1, 2)
    >>> round(first.paced_round(Round(2, 16, 1.0, 1.0, 1.0), factor=1.5).first, 3)
    2.154
    """

    __slots__ = (
        "_came",
        "_logs",
        "_since_s",
        "_slots",
        "begun",
        "ends",
        "late",
        "suspects",
        "wrote",
    )

    def __init__(self, slots: int, since_s: float = 0.0) -> None:
        """Begin with a limit that was set then."""
        self._slots = slots
        self._since_s = since_s
        self._logs: deque[float] = deque(maxlen=KEPT)  # by how much longer than usual they took
        self._came: deque[tuple[float, float]] = deque(maxlen=KEPT)  # when, and what reading takes
        self.begun = 0
        self.late = 0
        self.ends = 0
        """Streams that have ended meanwhile: each of them let another begin."""
        self.wrote = 0
        """The most that were seen to write at once: so many run, however late some began."""
        self.suspects = False
        """Whether some seem to wait inside, so that it is to be seen how many write."""

    @property
    def on_time(self) -> int:
        return self.begun - self.late

    def took(
        self, stream: Silent, first_byte_s: float, now_s: float, known: KnownRounds, costs: Costs
    ) -> bool:
        """Take a stream that has begun after so long; say whether that is late."""
        model, prompt_tokens, started_s = stream
        usual_s = costs.first_byte_s(model, prompt_tokens)
        reading_s, others_s = costs.reading_s(model, prompt_tokens), self._read_since_s(started_s)
        self._came.append((now_s, reading_s))
        last = known.last_below(self._slots)
        if usual_s is None or last is None or started_s < self._since_s:
            return False
        longest_s = self._longest_s(last, self.begun + 1, usual_s, others_s, first_byte_s)
        is_late = first_byte_s > longest_s
        self.note(first_byte_s, usual_s, is_late=is_late)
        return is_late

    def overdue(self, streams: list[Silent], now_s: float, known: KnownRounds, costs: Costs) -> int:
        """Return how many streams should have begun by now, of all that have not, in order."""
        late, reading_s, last = 0, 0.0, known.last_below(self._slots)
        for order, (model, prompt_tokens, started_s) in enumerate(streams, self.begun + 1):
            usual_s = costs.first_byte_s(model, prompt_tokens)
            others_s, waited_s = self._read_since_s(started_s) + reading_s, now_s - started_s
            reading_s += costs.reading_s(model, prompt_tokens)
            if usual_s is not None and last is not None and started_s >= self._since_s:
                late += waited_s > self._longest_s(last, order, usual_s, others_s, waited_s)
        return late

    def note(self, first_byte_s: float, usual_s: float, *, is_late: bool) -> None:
        """Take one that has come, and what is usual for it."""
        self.begun += 1
        self.late += is_late
        self._logs.append(log(max(TINY, first_byte_s) / usual_s))

    def _longest_s(
        self, last: Round, order: int, usual_s: float, others_s: float, took_s: float
    ) -> float:
        """Return how long one may take that was sent as the `order`-th since the limit was set."""
        usual_s *= last.first
        at_once = order <= self._slots - last.slots
        longest_s = usual_s * max(LATE * self._slots / last.slots, order if at_once else 1)
        if IN_TURN_MIN * others_s <= took_s:
            longest_s = max(longest_s, IN_TURN_MAX * (usual_s + others_s))
        return longest_s

    def _read_since_s(self, started_s: float) -> float:
        """Return how long it takes to read the prompts of those that have come since."""
        total_s = 0.0
        for at_s, reading_s in reversed(self._came):
            if at_s <= started_s:
                break
            total_s += reading_s
        return total_s

    def seen_inside(self, inside: int) -> int | None:
        """Return how many wait inside, of those that seem to: none that writes.

        None do if no first byte was late. None is returned where that is still to be seen.

        >>> first = FirstBytes(slots=8)
        >>> first.seen_inside(3)  # by how late they began
        >>> first.wrote = 7
        >>> first.seen_inside(3)
        1
        """
        looks, self.suspects = self.suspects, bool(inside) and not self.suspects
        wrote, self.wrote = self.wrote, 0
        began, late, self.begun, self.late = self.begun, self.late, 0, 0
        if not looks:
            return None if inside else 0
        if began and not late:
            return 0
        return max(0, min(inside, self._slots - wrote))

    def paced_round(self, low: Round, factor: float) -> Round:
        """Return what these stand for where streams write so many times as slowly as at `low`."""
        first = factor * low.first
        if self.begun >= FIRST_SAMPLES:
            first = exp(middle(list(self._logs)))
        return Round(self._slots, PACE_SAMPLES, first, factor * low.rest, first)
