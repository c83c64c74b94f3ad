"""The numbers of jobs that the metrics show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.hot.accounting import Histogram
from forebay.jobs.store.counts import JobCounts

if TYPE_CHECKING:
    from collections.abc import Callable


class JobFigures:
    """Plain numbers, kept by `Jobs`."""

    def __init__(self) -> None:
        self.counts = JobCounts(self._note_wait)
        self.waits: dict[tuple[str], Histogram] = {}
        """By type: how long jobs were queued."""
        self.vram_reserved_gb: Callable[[], float] = lambda: 0.0

    def _note_wait(self, task_type: str, seconds: float) -> None:
        self.waits.setdefault((task_type,), Histogram()).add(seconds)
