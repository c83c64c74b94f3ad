"""Never more running than slots, and no request run twice: what the nodes alone can tell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from harness.fleet.journal import Journal, Run, Window, outside


class Overcommit(Struct, frozen=True):
    """A stretch of time in which a node ran more than its slots."""

    node: str
    from_s: float
    to_s: float
    over: int
    """The most that it ran beyond its slots."""

    @property
    def for_s(self) -> float:
        """How long it went on."""
        return self.to_s - self.from_s


def overcommits(journal: Journal) -> list[Overcommit]:
    """Return every stretch in which a node ran more than its slots, in order of time."""
    by_node = defaultdict(list)
    for run in journal.runs:
        by_node[run.node].append(run)
    found = [
        one
        for node, runs in by_node.items()
        for one in _beyond(node, journal.slots[node], _steps(runs, journal.ended_s))
    ]
    return sorted(found, key=lambda one: (one.from_s, one.node))


def _steps(runs: Iterable[Run], ended_s: float) -> list[tuple[float, int]]:
    """Return when the number of runs goes up or down, and by how much; ends come before begins."""
    steps = []
    for run in runs:
        steps += [(run.began_s, 1), (min(run.ended_s, ended_s), -1)]
    return sorted(steps)


def _beyond(node: str, slots: int, steps: list[tuple[float, int]]) -> Iterable[Overcommit]:
    running, most, since_s = 0, 0, 0.0
    for at_s, change in steps:
        before, running = running, running + change
        if before <= slots < running:
            most, since_s = 0, at_s
        most = max(most, running - slots)
        if running <= slots < before and at_s > since_s:
            yield Overcommit(node, since_s, at_s, most)


def outside_windows(found: Iterable[Overcommit], windows: list[Window]) -> list[Overcommit]:
    """Return those that are not wholly inside times in which they may be."""
    return [one for one in found if outside(one.from_s, one.to_s, windows)]


def episodes(found: Iterable[Overcommit], apart_s: float) -> list[Overcommit]:
    """Return the stretches with those of one node joined that are less than `apart_s` apart.

    Short requests end and begin all the time: somebody who goes on using a slot that is no longer
    his is seen as many short stretches, and is one episode.
    """
    joined: dict[str, list[Overcommit]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.from_s):
        last = joined[one.node][-1] if joined[one.node] else None
        if last is not None and one.from_s - last.to_s < apart_s:
            to_s, over = max(last.to_s, one.to_s), max(last.over, one.over)
            joined[one.node][-1] = Overcommit(one.node, last.from_s, to_s, over)
        else:
            joined[one.node].append(one)
    return [one for of_node in joined.values() for one in of_node]


def too_much(
    found: Iterable[Overcommit], slots: Mapping[str, int], longest_s: float
) -> list[Overcommit]:
    """Return those that break the promise even where they may be: too long, or beyond twice."""
    return [one for one in found if one.for_s > longest_s or one.over > slots[one.node]]


def run_twice(journal: Journal) -> list[str]:
    """Return the requests that ran at two places at once, or to their end more than once.

    A request may run again after its first run was hung up: that is a retry.
    """
    by_id = defaultdict(list)
    for run in journal.runs:
        by_id[run.id].append(run)
    return sorted(id for id, runs in by_id.items() if _overlap(runs) or _served(runs) > 1)


def _served(runs: list[Run]) -> int:
    return sum(run.outcome == "served" for run in runs)


def _overlap(runs: list[Run]) -> bool:
    running = most = 0
    for _, change in _steps(runs, float("inf")):
        running += change
        most = max(most, running)
    return most > 1
