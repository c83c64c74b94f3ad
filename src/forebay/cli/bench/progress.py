"""How far a run is: a bar on a terminal, a line every few seconds elsewhere; on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from forebay.cli.output.tables import SafeConsole
from forebay.cli.output.text import printable, short

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.load.plan import LoadPlan
    from forebay.load.run import RunProgress

LINE_EVERY_S = 5.0
LATE_S = 0.05
"""Later than this is said while it runs, too."""


class BenchProgressBar:
    """What is shown while a run is under way."""

    def __init__(
        self, clock: Clock, plan: LoadPlan, planned: int, console: SafeConsole | None = None
    ) -> None:
        self._clock = clock
        self._plan = plan
        self._planned = planned
        self._console = console or SafeConsole(stderr=True, markup=False, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_s = clock.monotonic_s()

    def __enter__(self) -> Self:
        plan = self._plan
        how = {"poisson": "Poisson arrivals", "constant": "even arrivals", "trace": "a trace"}
        self._console.print(
            f"Loading {plan.url} with {printable(plan.model)}: {self._planned:,} requests, "
            f"{how[plan.arrivals]}. Ctrl-C ends early and still reports.",
            soft_wrap=True,
        )
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("Sending", total=self._planned, figures="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, live: RunProgress) -> None:
        if self._bar is not None and self._task is not None:
            over = live.ok + live.failed + live.not_sent
            self._bar.update(
                self._task,
                description=_stage(live, self._plan),
                completed=over,
                figures=figures(live),
            )
            return
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= LINE_EVERY_S:
            self._said_s = now_s
            self._console.print(f"{_stage(live, self._plan)}: {figures(live)}", soft_wrap=True)


def _stage(live: RunProgress, plan: LoadPlan) -> str:
    if live.now_s < plan.warmup_s:
        return "Warming up"
    return "Sending" if live.now_s < live.span_s else "Waiting for the last answers"


def figures(live: RunProgress) -> str:
    """Return the figures of the moment.

    >>> from forebay.load.run import RunProgress
    >>> figures(RunProgress(10, span_s=30.0, now_s=12.0, sent=4, ok=2, failed=1, in_flight=1))
    '12 s of 30 s, 2 answered, 1 failed, 1 under way'
    """
    parts = [f"{short(live.now_s)} of {short(live.span_s)}", f"{live.ok:,} answered"]
    if live.failed:
        parts.append(f"{live.failed:,} failed")
    parts.append(f"{live.in_flight:,} under way")
    if live.not_sent:
        parts.append(f"{live.not_sent:,} NOT SENT")
    if live.late_s > LATE_S:
        parts.append(f"{live.late_s:.1f} s BEHIND")
    return ", ".join(parts)
