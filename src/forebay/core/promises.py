"""Correction of estimated waits by the outcome of earlier ones.

**No integrator.** A promise can be judged only when its wait is over, hundreds of starts later. A
factor that steps up or down with each verdict goes on stepping all that time and swings between
its stops. So each entry keeps its raw estimate; when it starts, actual / raw goes into a window,
and the next promise takes the window's median as it stands. Nothing is summed up over the delay.

There is a window for each octave of the raw estimate, and apart for those who stand behind others
of their own: these are wrong in ways of their own. The median of a window is itself uncertain;
taken is what is nearest to 1 within its standard error, `n / 2 +- sqrt(n) / 2` in the order of n
ratios. So an estimate that is right as far as can be told is left alone. What corrects a long wait
is as old as the wait is long, while the raw estimate follows the present; so the longer the wait,
the less of the correction is applied to it. (On traces the whole of it is worse than none where the
load has turned meanwhile.)

**p90** is the promised p50 times the 90th percentile of actual / promised.
"""

from __future__ import annotations

from collections import deque
from math import frexp, sqrt
from typing import Final

RATIOS: Final = 200
ERRORS: Final = 2000
OCTAVES: Final = 16
FIRST_OCTAVE: Final = -2
"""Below a quarter of a second all are alike, and beyond two hours."""
FRESH_S: Final = 120.0
"""Of a wait of this length half of the correction is applied."""
RENEWED: Final = 4
DOUBT: Final = 8.0
"""So many ratios of 1 are taken as seen before the first."""
RATIO_MIN: Final = 0.05
"""A promise is never zero, whatever the waits have been."""
P90_UNKNOWN: Final = 2.0
P90_MIN: Final = 1.08
LONGEST_OF: Final = 500


class Quantile:
    """One quantile of the last values, recomputed when a quarter of them is new."""

    __slots__ = ("_share", "_value", "fresh", "values")

    def __init__(self, share: float, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)
        self.fresh = 0  # of them, since the quantile was made
        self._share = share
        self._value = 0.0

    def value(self) -> float:
        """Return the quantile; there must be a value."""
        if self.fresh * RENEWED >= len(self.values):
            self.fresh = 0
            self._value = self.among(sorted(self.values))
        return self._value

    def among(self, ordered: list[float]) -> float:
        """Return the quantile of all values in order."""
        return ordered[int(self._share * len(ordered))]


class Correction(Quantile):
    """The median of the last ratios, or what is nearer to 1 within its standard error."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0.5, RATIOS)

    def among(self, ordered: list[float]) -> float:
        count = len(ordered)
        error = int(sqrt(count) / 2)
        low, high = ordered[count // 2 - error], ordered[min(count // 2 + error, count - 1)]
        return low if low > 1.0 else high if high < 1.0 else 1.0


class Promises:
    """The last waits of one queue, and how they had been estimated."""

    __slots__ = ("_before_s", "_count", "_errors", "_longest_s", "_ratios")

    def __init__(self) -> None:
        self._ratios: list[Correction | None] = [None] * (2 * OCTAVES)
        self._errors = Quantile(0.9, ERRORS)
        self._longest_s = self._before_s = 0.0  # of this hundreds of starts, and of those before
        self._count = 0

    def longest_s(self) -> float:
        """Return the longest of the last waits, 500 to 1,000 of them."""
        return self._longest_s if self._longest_s > self._before_s else self._before_s

    def correct(self, raw_s: float, behind_own: bool, forecast: bool) -> tuple[int, float, float]:
        """Return the kind of a raw estimate, for `learn`, and the p50 and p90 to promise.

        One that is mostly a `forecast` of what will come above is not corrected.
        """
        kind = frexp(raw_s)[1] - FIRST_OCTAVE
        if kind < 0:
            kind = 0
        elif kind >= OCTAVES:
            kind = OCTAVES - 1
        if behind_own:
            kind += OCTAVES
        p50_s = raw_s
        window = self._ratios[kind]
        if window is not None and not forecast:
            count = len(window.values)
            trust = count / (count + DOUBT) * FRESH_S / (FRESH_S + raw_s)
            p50_s *= window.value() ** trust
        errors = self._errors
        high = errors.value() if len(errors.values) > DOUBT else P90_UNKNOWN
        return kind, p50_s, p50_s * (high if high > P90_MIN else P90_MIN)

    def learn(self, kind: int, raw_s: float, p50_s: float, waited_s: float) -> None:
        """Take note of a wait that is over, and of how it had been estimated."""
        window = self._ratios[kind]
        if window is None:
            window = self._ratios[kind] = Correction()
        ratio = waited_s / raw_s
        window.values.append(ratio if ratio > RATIO_MIN else RATIO_MIN)
        window.fresh += 1
        errors = self._errors
        errors.values.append(waited_s / p50_s)
        errors.fresh += 1
        if waited_s > self._longest_s:
            self._longest_s = waited_s
        self._count += 1
        if self._count == LONGEST_OF:
            self._before_s, self._longest_s, self._count = self._longest_s, 0.0, 0
