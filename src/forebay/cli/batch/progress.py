"""How far a batch is: a bar on a terminal, a line now and then elsewhere; all on standard error."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from forebay.cli.output.tables import SafeConsole
from forebay.cli.output.text import short, speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from forebay.api.batches import Batch, RequestCounts
    from forebay.clock import Clock

WINDOW_S = 60.0
"""How far back the speed looks: long enough to be calm, short enough to be true."""
SAMPLES_MAX = 256
STATUSES = {
    "validating": "Checking the file",
    "in_progress": "Running",
    "finalizing": "Writing the output",
    "cancelling": "Cancelling",
}


class Throughput:
    """How fast something goes, over a window."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def note(self, now_s: float, done: int) -> None:
        self._samples.append((now_s, done))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    def per_second(self) -> float:
        """Return how much was done in a second, lately; 0 as long as nobody knows."""
        if len(self._samples) < 2:
            return 0.0
        (then_s, before), (now_s, done) = self._samples[0], self._samples[-1]
        return max(0.0, (done - before) / (now_s - then_s)) if now_s > then_s else 0.0

    def left_s(self, left: int) -> float | None:
        """Return how long the rest will take at this pace; None where nothing moves."""
        per_second = self.per_second()
        return left / per_second if per_second > 0 else None


class BatchProgressBar:
    """What is shown while a batch runs."""

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        self._clock = clock
        self._console = console or SafeConsole(stderr=True, markup=False, highlight=False)
        self._throughput = Throughput()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._told: tuple[object, ...] = ()

    def say(self, text: str) -> None:
        """Say something, above the bar where there is one."""
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show a batch; `update` it meanwhile."""
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("Waiting", total=None, figures="")
            try:
                yield
            finally:
                self._bar = self._task = None

    def update(self, batch: Batch) -> None:
        counts = batch.request_counts
        total, done = counts.total, counts.completed + counts.failed
        if total:
            self._throughput.note(self._clock.monotonic_s(), done)
        description = STATUSES.get(batch.status, batch.status)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                description=description,
                total=total or None,
                completed=done,
                figures=self._figures(counts),
            )
            return
        now = (description, done * 10 // total if total else 0)
        if batch.status in STATUSES and now != self._told:
            self._told = now  # a line for each tenth
            self.say(f"{description}: {self._figures(counts)}" if total else f"{description} ...")

    def _figures(self, counts: RequestCounts) -> str:
        total, done = counts.total, counts.completed + counts.failed
        if not total:
            return ""
        parts = [f"{done:,} of {total:,} done"]
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        left_s = self._throughput.left_s(total - done)
        if left_s is not None and done < total:
            parts += [speed(self._throughput.per_second()), f"{short(left_s)} left"]
        return ", ".join(parts)
