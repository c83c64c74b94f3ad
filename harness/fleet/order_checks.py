"""In which order requests began: the first come first, the urgent first, and users in turn.

A client's clock starts when it has sent its request and a node's when it has read it, so two
requests have an order only if they were sent, and begun, further apart than a tolerance.
"""

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from harness.fleet.journal import Asked, Journal

TOLERANCE_S = 0.1
URGENCY = {"high": 0, "normal": 1, "low": 2}


class Overtaking(Struct, frozen=True):
    """One request that began before another that should have been first."""

    first: str
    """Who should have been first."""
    overtaker: str
    at_s: float
    """When the other one began."""
    by_s: float
    """How much later the first one did."""


class Begun(Struct):
    """A request and when it first ran."""

    asked: Asked
    began_s: float


def begun(journal: Journal) -> list[Begun]:
    """Return the requests that ran and were answered well, in the order in which they began.

    Others may have been sent back and forth, and have no one place in the order.
    """
    first: dict[str, float] = {}
    for run in journal.runs:
        first[run.id] = min(run.began_s, first.get(run.id, run.began_s))
    served = [one for one in journal.asked if one.status == 200 and one.id in first]
    return sorted((Begun(one, first[one.id]) for one in served), key=lambda one: one.began_s)


def overtaken_in_line(journal: Journal, tolerance_s: float = TOLERANCE_S) -> list[Overtaking]:
    """Return, for one user and class, those that began before one sent earlier; each once."""
    lines = defaultdict(list)
    for one in begun(journal):
        lines[(one.asked.user, one.asked.priority)].append(one)
    return [found for line in lines.values() for found in _overtaken(line, tolerance_s)]


def _overtaken(line: list[Begun], tolerance_s: float) -> Iterable[Overtaking]:
    """Yield each that was begun before one which had been sent earlier; they are in begun order."""
    earliest: Begun | None = None  # of those that began later than the one looked at
    for one in reversed(line):
        if (
            earliest is not None
            and earliest.asked.sent_s < one.asked.sent_s - tolerance_s
            and earliest.began_s > one.began_s + tolerance_s
        ):
            late_s = earliest.began_s - one.began_s
            yield Overtaking(earliest.asked.id, one.asked.id, one.began_s, late_s)
        if earliest is None or one.asked.sent_s < earliest.asked.sent_s:
            earliest = one


def urgent_kept_waiting(journal: Journal, tolerance_s: float = TOLERANCE_S) -> list[Overtaking]:
    """Return those that began while one of a higher class had been waiting; each once."""
    every = begun(journal)
    return [found for one in every if (found := _passed_over(one, every, tolerance_s)) is not None]


def _passed_over(one: Begun, every: list[Begun], tolerance_s: float) -> Overtaking | None:
    for other in every:
        if (
            URGENCY[other.asked.priority] < URGENCY[one.asked.priority]
            and other.asked.sent_s < one.began_s - tolerance_s
            and other.began_s > one.began_s + tolerance_s
        ):
            late_s = other.began_s - one.began_s
            return Overtaking(other.asked.id, one.asked.id, one.began_s, late_s)
    return None


def unfairness(journal: Journal, user: str, other: str) -> int:
    """Return by how many requests one of two users was served ahead, at most, while both waited.

    Counted over every stretch in which both have something waiting, from any moment of it to any
    later one; 1 is exact turns.
    """
    steps = []
    for one in begun(journal):
        if one.asked.user in (user, other):
            sign = 1 if one.asked.user == user else -1
            steps += [(one.asked.sent_s, sign, True), (one.began_s, sign, False)]
    waiting = {1: 0, -1: 0}
    worst = balance = lowest = highest = 0
    for _, sign, joins in sorted(steps):
        if joins:
            waiting[sign] += 1
            continue
        if all(waiting.values()):
            balance += sign
            lowest, highest = min(lowest, balance), max(highest, balance)
            worst = max(worst, highest - lowest)
        waiting[sign] -= 1
        if not all(waiting.values()):
            balance = lowest = highest = 0
    return worst
