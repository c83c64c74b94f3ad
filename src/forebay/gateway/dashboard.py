"""What the watch of the dashboard looks at in a gateway."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from forebay import __version__
from forebay.dashboard.picture import BatchProgress, JobsPicture, JobType, SessionsPicture
from forebay.dashboard.watch import Status, Surroundings, Watch
from forebay.gateway.errors.remedies import GOOD_ENDS, remedy_of
from forebay.gateway.hot.accounting import BUCKETS_S

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.gateway.hot.accounting import Accounting
    from forebay.gateway.jobs.service import Jobs
    from forebay.gateway.parts import Parts

WAITED: Final = frozenset({"served", "passed_through", "cancelled", "queue_timeout"})
BATCHES_S: Final = 2.0
"""How old the progress of batches may be: it is the one thing that is asked of the database."""
GPUS_S: Final = 1.0
"""How old the figures of a GPU may be while someone looks; else they come with the probes."""


def make_watch(parts: Parts, clock: Timers) -> Watch:
    """Return the watch over a gateway; the parts it looks at have been made."""
    accounting, sessions = parts.accounting, parts.sessions.figures
    jobs = _JobsView(parts.jobs, clock)

    gpus = _Pace(GPUS_S, clock)

    def watched() -> None:
        jobs.refresh()
        if gpus.due():
            parts.nodes.read_gpus()

    def status() -> Status:
        settings = parts.settings
        return Status(
            draining=parts.draining,
            ready=parts.is_ready(),
            queue_enabled=settings.queue.enabled,
            wait_s_max=settings.queue.max_wait_seconds,
            priorities=settings.queue.priorities,
            retries=parts.relay.retries_total,
        )

    around = Surroundings(
        look=parts.lookout.look,
        nodes=parts.nodes,
        clock=clock,
        waits=lambda: waits_by_bucket(accounting),
        bounds_s=BUCKETS_S,
        outcomes=lambda: bad_ends(accounting),
        remedy_of=remedy_of,
        status=status,
        jobs=jobs.picture,
        sessions=lambda: SessionsPicture(sessions.held(), sessions.pending()),
        fleet=lambda: parts.membership.fleet,
        watched=watched,
        epoch=random.SystemRandom().randbytes(4).hex(),
        gateway=__version__,
    )
    return Watch(around)


def waits_by_bucket(accounting: Accounting) -> list[int]:
    """Return how long requests waited since the start: for a slot, or until they gave up.

    What was refused at once is left out: it would make the waits of the others look short.
    """
    total = [0] * (len(BUCKETS_S) + 1)
    for (_, outcome), histogram in accounting.waits.items():
        if not _waits(outcome):
            continue
        for index, count in enumerate(histogram.counts):
            total[index] += count
    return total


def _waits(outcome: str) -> bool:
    """Say whether what ended so was in line, or had its slot."""
    return outcome in WAITED or remedy_of(outcome).kind == "error"


def bad_ends(accounting: Accounting) -> dict[str, int]:
    """Return how many requests did not end well since the start, by code."""
    ends: dict[str, int] = {}
    for (_, outcome), count in accounting.requests.items():
        if outcome not in GOOD_ENDS:
            ends[outcome] = ends.get(outcome, 0) + count
    return ends


class _Pace:
    """Says when something is due that is done at most so often."""

    def __init__(self, every_s: float, clock: Timers) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last_s = clock.monotonic_s() - every_s

    def due(self) -> bool:
        """Say whether it is time, and count from now if it is."""
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True


class _JobsView:
    """The durable work, from counters; the progress of batches, from the database now and then."""

    def __init__(self, jobs: Jobs, clock: Timers) -> None:
        self._jobs = jobs
        self._batches = BatchProgress()
        self._pace = _Pace(BATCHES_S, clock)

    def picture(self) -> JobsPicture:
        """Return what there is."""
        figures = self._jobs.figures
        types: dict[str, dict[str, int]] = {}
        for (task_type, status), count in figures.counts.by_status.items():
            types.setdefault(task_type, {})[status] = count
        return JobsPicture(
            types=[JobType(name, **counts) for name, counts in sorted(types.items())],
            batches=self._batches,
            vram_reserved_bytes=int(figures.vram_reserved_gb() * 2**30),
        )

    def refresh(self) -> None:
        """Ask for the progress of the batches, unless that was done just now."""
        if self._pace.due():
            self._jobs.ask_batch_progress(self._take)

    def _take(self, asked: Future[tuple[int, int, int, int]]) -> None:
        """Take the answer in, on the database's thread; one assignment, so no lock."""
        if not asked.cancelled() and asked.exception() is None:
            self._batches = BatchProgress(*asked.result())
