"""When another number of requests at once is tried, and for how long: counted in answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from forebay.nodes.known_rounds import FIRST_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping

Trial: TypeAlias = Literal["higher", "lower"]

SEARCH_SAMPLES: Final = 6
SEARCH_SAMPLES_MAX: Final = 12
"""In a round of the search: half of the limit, within these."""
WATCH_SAMPLES: Final = 8
SURE_SAMPLES: Final = 16
"""In the round that ends the search, and at most in that of a trial."""
TRIAL_SAMPLES: Final = 8
"""In the round of a trial, at least; else as many as the limit."""
FIRST_WAIT: Final[Mapping[Trial, int]] = {"higher": 3, "lower": 6}
LAST_WAIT: Final = 24
"""How far trials that fail put off the next of their kind, in rounds of a trial."""
HARM: Final = 50
"""One first byte in so many may come late for a trial of more that was of no use."""


class TrialSchedule:
    """How many answers come before the next trial of each kind.

    >>> schedule = TrialSchedule()
    >>> schedule.restart(home=4)
    >>> schedule.count(24)
    >>> schedule.due()
    ['higher']
    """

    def __init__(self) -> None:
        self._seen: dict[Trial, int] = {"higher": 0, "lower": 0}  # answers since the last trial
        self._waits: dict[Trial, int] = {"higher": 0, "lower": 0}  # answers before the next

    def restart(self, home: int) -> None:
        """Begin anew at a limit that holds from now on."""
        self._seen = {"higher": 0, "lower": 0}
        self._waits = {which: rounds * _round(home) for which, rounds in FIRST_WAIT.items()}

    def restart_capped(self, home: int, harmed: float) -> None:
        """Begin anew where the engine has said what it takes, with so many requests too many."""
        lower = self._waits["lower"]
        self.restart(home)
        self._waits["lower"] = max(lower, self._waits["lower"])
        self._waits["higher"] = max(self._waits["higher"], int(HARM * harmed))

    def count(self, answers: int) -> None:
        self._seen = {which: seen + answers for which, seen in self._seen.items()}

    def hasten(self) -> None:
        """Have the next trial of more come at once."""
        self._waits["higher"] = 0

    def until_higher(self) -> int:
        """Return how many answers come before more is tried."""
        return self._waits["higher"] - self._seen["higher"]

    def due(self) -> list[Trial]:
        """Return what is to be tried, first that which was tried the longest ago."""
        due: list[Trial] = [one for one, seen in self._seen.items() if seen >= self._waits[one]]
        return sorted(due, key=lambda one: -self._seen[one])

    def begin(self, which: Trial) -> None:
        self._seen[which] = 0

    def put_off(self, which: Trial, home: int, harmed: float = 0.0) -> None:
        """Have the next one come after what that has cost, or twice as many as before this one."""
        if harmed:
            self._waits[which] = int(HARM * harmed)
        else:
            wait = max(_round(home), 2 * self._waits[which])
            self._waits[which] = min(LAST_WAIT * _round(home), wait)


def samples_wanted(phase: str, slots: int) -> int:
    """Return how many samples make a round."""
    if phase == "settled":
        return WATCH_SAMPLES
    if phase == "search":
        least = SEARCH_SAMPLES if slots > 1 else FIRST_SAMPLES
        return min(SEARCH_SAMPLES_MAX, max(least, slots // 2))
    return min(SURE_SAMPLES, max(TRIAL_SAMPLES, slots))


def harm(home: int, slots: int, late: int, on_time: int) -> float:
    """Return what a trial of more has cost, in first bytes that came late.

    Those above the limit that holds are late in any case; one that came in time counts by how much
    of the engine they take.

    >>> harm(home=8, slots=9, late=0, on_time=0), harm(home=8, slots=9, late=2, on_time=4)
    (1, 2.5)
    """
    more = slots - home
    return max(more, late + on_time * more / home)


def _round(home: int) -> int:
    return max(TRIAL_SAMPLES, home)
