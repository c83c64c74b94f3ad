"""The gateway's jobs: their database, which is that of the records, is opened when it is needed.

That is at the start where there may be jobs (an existing database file, PostgreSQL, or an app's own
task types), else when the first job is submitted: a gateway without jobs creates no file. A
database that cannot be opened fails the routes of jobs, not live requests, and is retried.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import ForebayError, StoreFailed
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.accounting import Histogram
from forebay.gateway.http.lazy_open import LazyOpen
from forebay.gateway.http.store_timeout import ANSWER_S, in_time, store_unavailable
from forebay.jobs.builtin import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.gateway.jobs.engine import JobEngine
    from forebay.gateway.records.service import RecordService
    from forebay.jobs.builtin import Resolve
    from forebay.jobs.job import Change, Status
    from forebay.relay.problem import Problem
    from forebay.relay.relay import Relay
    from forebay.settings import JobsSettings

T = TypeVar("T")

ENDS_KEPT = 16
PLACE_FREE_S_UNMEASURED, PLACE_FREE_S_MAX = 5.0, 50.0  # spread by a fifth, a minute at most
TYPES_MAX = 64
"""Labels are bounded: a type beyond that many is `other`."""


class JobFigures:
    """The numbers of jobs that the metrics show; changed on the loop only.

    Jobs are counted once at the start, by walking an index, and then with every change of this
    program; so a scrape costs nothing, however many rows are finished. On PostgreSQL, where others
    change jobs, too, they are counted again every minute. Lines of batches are not counted.
    """

    def __init__(self, clock: Timers) -> None:
        self._clock = clock
        self.by_status: dict[tuple[str, Status], int] = {}
        """How many jobs there are, by type and status."""
        self.waits: dict[tuple[str], Histogram] = {}
        """By type: how long jobs were queued."""
        self.vram_reserved_gb: Callable[[], float] = lambda: 0.0
        self.deleted: Counter[str] = Counter()
        """How many rows were deleted because of their age, by kind."""
        self._names: set[str] = set()
        # When the last jobs of a type ended:
        self._ends_s: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=ENDS_KEPT))

    def recount(self, counted: dict[tuple[str, Status], int]) -> None:
        """Start from what is in the store."""
        self.by_status = {}
        for (task_type, status), count in counted.items():
            self._add(task_type, status, count)

    def take_in(self, changes: list[Change]) -> None:
        for change in changes:
            if change.before == change.status or change.batch_id is not None:
                continue  # only a stage, or a line
            if change.before is not None:
                self._add(change.task_type, change.before, -1)
            self._add(change.task_type, change.status, 1)
            if change.before == "running" and change.status != "queued":
                self._ends_s[self._label(change.task_type)].append(self._clock.monotonic_s())
            if change.waited_s is not None:
                label = (self._label(change.task_type),)
                self.waits.setdefault(label, Histogram()).add(change.waited_s)

    def place_free_s(self, task_type: str) -> float:
        """Return when a place in the queue of a type becomes free, at the rate of the last ends."""
        ends_s = self._ends_s[self._label(task_type)]
        if len(ends_s) < 2:
            return PLACE_FREE_S_UNMEASURED
        return min(PLACE_FREE_S_MAX, (ends_s[-1] - ends_s[0]) / (len(ends_s) - 1))

    def count_deleted(self, kind: str, count: int) -> None:
        self.deleted[kind] += count

    def discount(self, deleted: Mapping[tuple[str, Status], int]) -> None:
        """Count no longer what was deleted because of its age."""
        for (task_type, status), count in deleted.items():
            self._add(task_type, status, -count)

    def _add(self, task_type: str, status: Status, count: int) -> None:
        key = (self._label(task_type), status)
        self.by_status[key] = max(0, self.by_status.get(key, 0) + count)

    def _label(self, task_type: str) -> str:
        if task_type not in self._names:
            if len(self._names) >= TYPES_MAX:
                return "other"
            self._names.add(task_type)
        return task_type


@dataclass(frozen=True)
class JobDeps:
    """What jobs need from the gateway."""

    settings: JobsSettings
    relay: Relay
    resolve: Resolve
    clock: Timers
    records: RecordService  # opens the database, which is that of the jobs, too
    may_use: Callable[[str, str], bool]
    """Whether the owner of a batch may use a model."""
    explain: Callable[[Problem, str, str], Problem]
    """Adds to a problem with a model what its owner may ask for instead."""
    paced: Callable[[], Mapping[str, int]]
    """Returns the owners of the keys that have limits or a `max_running`, with that."""
    in_force: Callable[[str], bool]
    """Whether an owner's key is; what has no owner always is."""
    revoked: Callable[[], Mapping[str, str]]
    """Returns the names of the keys that were revoked, by owner."""
    figures: JobFigures
    shares_nodes: bool = False
    """Whether all gateways that share the jobs have the same nodes."""
    webhook_secret: str | None = None


class JobService:
    """One gateway's jobs: `ready()` opens what they need."""

    def __init__(self, deps: JobDeps) -> None:
        self.settings = deps.settings
        self.figures = deps.figures
        self._deps = deps
        self._engine: JobEngine | None = None
        self._loading: asyncio.Task[JobEngine] | None = None
        self._opening = LazyOpen("the job database", self._open, deps.clock)

    @property
    def engine(self) -> JobEngine:
        """The engine, whether its database is open or not; it has been loaded."""
        assert self._engine is not None
        return self._engine

    def task_types(self) -> list[str]:
        """Return the types that jobs may have here; all of them after `know_types`."""
        return list(ROUTES) if self._engine is None else self._engine.task_types()

    def ask_batch_progress(
        self, on_result: Callable[[Future[tuple[int, int, int, int]]], None]
    ) -> None:
        """Count unfinished batches, if the database is open."""
        if (engine := self._opening.value) is not None:
            engine.batches.progress().add_done_callback(on_result)

    # -- the life of it

    async def start(self) -> None:
        """Continue with existing jobs; a database that fails is retried in the background.

        Raises BadModule where an app's own task types cannot be imported.
        """
        wanted = bool(self.settings.modules)
        if wanted:
            await self._loaded()
        if wanted or await asyncio.to_thread(self._deps.records.may_hold):
            await self._opening.try_now()

    async def know_types(self) -> None:
        """Wait for an app's own task types, which are imported while the gateway listens already.

        Raises HttpError where that takes long: a type that is not loaded yet is not unknown.
        """
        if not self.settings.modules:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._loaded()
        except (ForebayError, TimeoutError) as error:
            words = "the gateway is still loading the modules of jobs.modules"
            raise HttpError("store_unavailable", words) from error

    async def _loaded(self) -> JobEngine:
        """Return the engine, once it knows an app's own task types; raises BadModule."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> JobEngine:
        make = await asyncio.to_thread(_engine_class)
        self._engine = make(self._deps)
        if self.settings.modules:
            await asyncio.to_thread(self._engine.load_modules)
        return self._engine

    async def _open(self) -> JobEngine:
        # Not before the types are known: their jobs would fail for want of a handler.
        engine = await self._loaded()
        await engine.open()
        return engine

    async def ready(self) -> JobEngine:
        """Return the engine with its database open; raises HttpError where that fails."""
        return await self._opening.ready()

    def keys_changed(self) -> None:
        """Let queued jobs end whose key was revoked, and those go on whose key is back."""
        if (engine := self._opening.value) is not None:
            engine.keys_changed()

    def drain(self) -> None:
        """Disconnect followers; running jobs may finish."""
        self._opening.stopped = True
        if (engine := self._opening.value) is not None:
            engine.drain()

    async def finished(self, limit_s: float) -> None:
        """Wait until no handler of an app runs any more, at most `limit_s`."""
        if (engine := self._opening.value) is not None:
            await engine.finished(limit_s)

    async def stop(self) -> None:
        """Record outcomes and close; the relay has ended what was running."""
        if (engine := await self._opening.stop()) is not None:
            await engine.close()
        if self._engine is not None:
            self._engine.forget()


def _engine_class() -> type[JobEngine]:
    """Import the database's library."""
    from forebay.gateway.jobs.engine import JobEngine

    return JobEngine


async def from_store(future: Future[T]) -> T:
    """Wait for the store; raises HttpError where it fails."""
    try:
        return await in_time(future)
    except StoreFailed as error:
        raise store_unavailable("the job database", error) from error
