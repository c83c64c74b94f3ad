"""Reservations of GPU memory, shared by all runners on one PostgreSQL.

Budgets belong to a GPU, not to a program: two gateways on one machine share its memory, two on
different machines do not. So on PostgreSQL a type first stores a reservation, which expires with
its runner's lease, and starts only where the reservations of others leave room. A GPU is identified
by its UUID (NVML, the same in every container that sees it), or by the name of the host where its
size is only given in the settings.

What this does not see: runners with databases of their own. They count as other programs do, by
the memory in use. And a runner that is frozen for longer than its lease loses its reservations
while its model may still be loaded; it reserves again before its next job.

On SQLite there is one runner, and nothing is stored.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, text, update

from forebay.errors import StoreFailed
from forebay.jobs.runner.placement import ROUNDING_GB
from forebay.jobs.store.rows import queue_depths
from forebay.jobs.store.schema import gpu_holds
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from concurrent.futures import Future

    from sqlalchemy import Connection

    from forebay.jobs.runner.gpu_memory import GpuWatch
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

LOCK = 7804
"""Key space of the advisory locks, one per GPU."""


class GpuReservations:
    """The reservations of one runner. May be used from any thread."""

    def __init__(self, store: JobStore, gpus: GpuWatch, worker: str, lease_s: float) -> None:
        self._store = store
        self._gpus = gpus
        self._worker = worker
        self._lease_s = lease_s
        self._is_shared = not store.database.is_sqlite
        self._types: set[str] = set()  # that have a reservation, as far as we know

    def read(self) -> Future[tuple[dict[str, int], dict[str, float]]]:
        """Return the depth of each queue, and the GB that other runners hold of each GPU."""

        def work(connection: Connection) -> tuple[dict[str, int], dict[str, float]]:
            others = self._others(connection) if self._is_shared else {}
            return queue_depths(connection), others

        return self._store.database.read(work)

    def reserve(self, task_type: str, budget_gb: float, gpu: int | None) -> bool:
        """Reserve a type's budget on a GPU, or all GPUs where it runs alone; blocks.

        Called before each of its jobs; free of cost where it has a reservation. False where others
        were first, or the database is unavailable.
        """
        names = self._gpus.names()
        free = budget_gb <= 0 or not names
        if not self._is_shared or free or task_type in self._types:
            return True
        wanted = {names[gpu]: budget_gb} if gpu in names else dict.fromkeys(names.values(), 0.0)
        alone = gpu not in names
        try:
            taken = self._store.database.write(
                lambda connection: self._reserve(connection, task_type, wanted, alone=alone)
            ).result()
        except StoreFailed as error:
            logger.warning("reserving GPU memory failed: %s", error, extra={"action": "reserve"})
            return False
        if taken:
            self._types.add(task_type)
        return bool(taken)

    def release(self, task_type: str) -> None:
        """Delete a type's reservation; if that fails, it expires with the lease."""
        if task_type not in self._types:
            return
        self._types.discard(task_type)
        c = gpu_holds.c
        ours = delete(gpu_holds).where(c.worker == self._worker, c.task_type == task_type)

        def work(connection: Connection) -> None:
            connection.execute(ours)
            self._store.changes.notify_gpu_memory(connection)

        self._store.database.write(work)

    def renew(self) -> None:
        """Extend the reservations; a type that has lost one reserves again before its next job."""
        types = set(self._types)
        if not types:
            return
        c = gpu_holds.c
        lengthened = (
            update(gpu_holds)
            # Not all of this worker: one that could not be deleted must expire.
            .where(c.worker == self._worker, c.task_type.in_(types))
            .values(until=now_s() + self._lease_s)
            .returning(c.task_type)
        )

        def done(future: Future[set[str]]) -> None:
            if not future.cancelled() and future.exception() is None:
                self._types -= types - future.result()

        self._store.database.write(
            lambda connection: set(connection.execute(lengthened).scalars())
        ).add_done_callback(done)

    # -- inside a transaction

    def _others(self, connection: Connection) -> dict[str, float]:
        held: defaultdict[str, float] = defaultdict(float)
        c = gpu_holds.c
        alive = select(c.gpu, c.gb).where(c.worker != self._worker, c.until > now_s())
        for gpu, gb in connection.execute(alive):
            held[gpu] += gb
        return dict(held)

    def _reserve(
        self, connection: Connection, task_type: str, wanted: dict[str, float], *, alone: bool
    ) -> bool:
        for gpu in sorted(wanted):  # in one order, against deadlocks
            connection.execute(
                text("SELECT pg_advisory_xact_lock(:space, hashtext(:gpu))"),
                {"space": LOCK, "gpu": gpu},
            )
        c = gpu_holds.c
        connection.execute(delete(gpu_holds).where(c.gpu.in_(wanted), c.until < now_s()))
        rows = connection.execute(
            select(c.gpu, c.gb).where(
                c.gpu.in_(wanted), (c.worker != self._worker) | (c.task_type != task_type)
            )
        ).all()
        held: defaultdict[str, float] = defaultdict(float)
        for gpu, gb in rows:
            held[gpu] += gb
        sizes = self._gpus.sizes(held)
        fits = all(held[gpu] + gb <= sizes[gpu] + ROUNDING_GB for gpu, gb in wanted.items())
        if not fits or (alone and rows):
            return False
        for gpu, gb in wanted.items():
            row = {"gpu": gpu, "worker": self._worker, "task_type": task_type}
            connection.execute(delete(gpu_holds).filter_by(**row))
            size_gb = sizes[gpu] if alone else gb
            connection.execute(
                insert(gpu_holds).values(**row, gb=size_gb, until=now_s() + self._lease_s)
            )
        return True
