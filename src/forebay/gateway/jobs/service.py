"""The gateway's durable work, from the outside: opened when it is needed.

That is at the start where there may be work (a database file that exists, PostgreSQL, or an app's
own task types), else when the first job comes: a gateway that is never given a job leaves no file
behind, and does not even load the database's library. A database that cannot be opened costs the
jobs, not the live requests: the routes say so, and it is tried again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import ForebayError, StoreFailed
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.lazy_open import LazyOpen, may_hold
from forebay.gateway.http.store_timeout import ANSWER_S, in_time, store_unavailable
from forebay.gateway.jobs.figures import JobFigures
from forebay.jobs.builtin import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.clock import Timers
    from forebay.gateway.jobs.engine import JobEngine
    from forebay.jobs.batches.files import Files
    from forebay.jobs.batches.service import BatchService
    from forebay.jobs.builtin import Resolve
    from forebay.jobs.store.followers import JobFollowers
    from forebay.jobs.store.job_store import JobStore
    from forebay.relay.relay import Relay
    from forebay.settings import JobsSettings

T = TypeVar("T")


@dataclass(frozen=True)
class JobDeps:
    """What the jobs need of the gateway."""

    settings: JobsSettings
    relay: Relay
    resolve: Resolve
    clock: Timers
    may_use: Callable[[str, str], bool]
    """Whether the owner of a batch may use a model."""
    webhook_secret: str | None = None
    figures: JobFigures = field(default_factory=JobFigures)


class JobService:
    """One gateway's jobs; `ready()` before anything of the store is touched."""

    def __init__(self, deps: JobDeps) -> None:
        self.settings = deps.settings
        self.figures = deps.figures
        self._deps = deps
        self._engine: JobEngine | None = None
        self._loading: asyncio.Task[JobEngine] | None = None
        self._opening = LazyOpen("the job database", self._open, deps.clock)

    # -- once it is ready

    @property
    def engine(self) -> JobEngine:
        """Everything that lives on the store."""
        assert self._engine is not None
        return self._engine

    @property
    def store(self) -> JobStore:
        """Where the jobs are."""
        return self.engine.store

    @property
    def files(self) -> Files:
        """What callers have uploaded, and what batches have answered."""
        return self.engine.files

    @property
    def batches(self) -> BatchService:
        """Many requests in a file."""
        return self.engine.batches

    @property
    def followers(self) -> JobFollowers:
        """Who follows which job."""
        return self.engine.followers

    def task_types(self) -> list[str]:
        """Return the types that jobs may have here; all of them after `know_types`."""
        return list(ROUTES) if self._engine is None else self._engine.task_types()

    def ask_batch_progress(self, told: Callable[[Future[tuple[int, int, int, int]]], None]) -> None:
        """Have the batches that have not ended counted, where the database is open at all."""
        if (engine := self._opening.value) is not None:
            engine.batches.progress().add_done_callback(told)

    # -- the life of it

    async def start(self) -> None:
        """Go on with what is there; a database that fails is tried again later.

        Raises BadModule where an app's own task types cannot be imported.
        """
        wanted = bool(self.settings.modules)
        if wanted:
            await self._loaded()
        if wanted or await asyncio.to_thread(may_hold, self.settings.database):
            await self._opening.try_now()

    async def know_types(self) -> None:
        """Wait for an app's own task types, which the gateway imports while it listens already.

        Raises HttpError where that takes long: a type that is not known yet is not unknown.
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
        # Not before the types are known: jobs of others would be failed for want of a handler.
        engine = await self._loaded()
        await engine.open()
        return engine

    async def ready(self) -> None:
        """Open the database unless that has been done; raises HttpError where it cannot be."""
        await self._opening.ready()

    def drain(self) -> None:
        """Let followers go; running jobs may finish."""
        self._opening.stopped = True
        if (engine := self._opening.value) is not None:
            engine.drain()

    async def finished(self, limit_s: float) -> None:
        """Wait until no handler of an app runs any more, for a while."""
        if (engine := self._opening.value) is not None:
            await engine.finished(limit_s)

    async def stop(self) -> None:
        """Record what has ended, and close; the relay has ended what was running."""
        if (engine := await self._opening.stop()) is not None:
            await engine.close()
        if self._engine is not None:
            self._engine.forget()


def _engine_class() -> type[JobEngine]:
    """Load what is not needed without jobs."""
    from forebay.gateway.jobs.engine import JobEngine

    return JobEngine


async def from_store(future: Future[T]) -> T:
    """Wait for the store; raises HttpError where it fails."""
    try:
        return await in_time(future)
    except StoreFailed as error:
        raise store_unavailable("the job database", error) from error
