"""How many jobs there are, by type and status, and how long they waited: for the metrics.

Counted once at the start, by walking an index, and then with every change of this program; so that
a scrape costs nothing, however many rows are finished. Beside PostgreSQL, where others change jobs,
too, they are counted again every minute. Lines of batches are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import Change, Status

TYPES_MAX = 64
"""Labels are bounded: a type beyond that many is `other`."""


class JobCounts:
    """Plain integers; changed on the loop only."""

    def __init__(self, note_wait: Callable[[str, float], None]) -> None:
        self.by_status: dict[tuple[str, Status], int] = {}
        self._names: set[str] = set()
        self._note_wait = note_wait

    def begin(self, counted: dict[tuple[str, Status], int]) -> None:
        """Start from what is in the store."""
        self.by_status = {}
        for (task_type, status), count in counted.items():
            self._add(task_type, status, count)

    def take_in(self, changes: list[Change]) -> None:
        """Follow what changed."""
        for change in changes:
            if change.before == change.status or change.batch_id is not None:
                continue  # only a stage, or a line
            if change.before is not None:
                self._add(change.task_type, change.before, -1)
            self._add(change.task_type, change.status, 1)
            if change.waited_s is not None:
                self._note_wait(self._label(change.task_type), change.waited_s)

    def _add(self, task_type: str, status: Status, count: int) -> None:
        key = (self._label(task_type), status)
        self.by_status[key] = max(0, self.by_status.get(key, 0) + count)

    def _label(self, task_type: str) -> str:
        if task_type not in self._names:
            if len(self._names) >= TYPES_MAX:
                return "other"
            self._names.add(task_type)
        return task_type
