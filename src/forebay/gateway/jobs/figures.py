"""The numbers of jobs that the metrics show.

Jobs are counted once at the start, by walking an index, and then with every change of this program;
so a scrape costs nothing, however many rows are finished. On PostgreSQL, where others change jobs,
too, they are counted again every minute. Lines of batches are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.hot.accounting import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import Change, Status

TYPES_MAX = 64
"""Labels are bounded: a type beyond that many is `other`."""


class JobFigures:
    """Plain numbers; changed on the loop only."""

    def __init__(self) -> None:
        self.by_status: dict[tuple[str, Status], int] = {}
        """How many jobs there are, by type and status."""
        self.waits: dict[tuple[str], Histogram] = {}
        """By type: how long jobs were queued."""
        self.vram_reserved_gb: Callable[[], float] = lambda: 0.0
        self._names: set[str] = set()

    def recount(self, counted: dict[tuple[str, Status], int]) -> None:
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
                label = (self._label(change.task_type),)
                self.waits.setdefault(label, Histogram()).add(change.waited_s)

    def _add(self, task_type: str, status: Status, count: int) -> None:
        key = (self._label(task_type), status)
        self.by_status[key] = max(0, self.by_status.get(key, 0) + count)

    def _label(self, task_type: str) -> str:
        if task_type not in self._names:
            if len(self._names) >= TYPES_MAX:
                return "other"
            self._names.add(task_type)
        return task_type
