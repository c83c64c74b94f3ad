"""Signs of life for what runs here, and what becomes of claims whose end was never heard of.

A claim may be committed while its answer is lost with the connection. Such a job is ours in the
store without our knowing it, and would run nowhere for as long as we live. So each heartbeat asks
what is ours; what is there twice in a row without being held, and while no claim is on its way,
goes back to its place.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from forebay.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

T = TypeVar("T")


class Leases:
    """The leases of one worker."""

    def __init__(
        self, store: JobStore, worker: str, lease_s: float, is_claiming: Callable[[], bool]
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease_s = lease_s
        self._is_claiming = is_claiming
        self.in_doubt = False
        """Whether a claim may have been committed without our knowing."""
        self._unknown: set[int] = set()

    async def beat(self, held: Mapping[tuple[int, int], T]) -> list[T]:
        """Lengthen the leases of what is held, by id and fence; return what is lost."""
        ours, settled = dict(held), not self._is_claiming()
        if not ours and not self.in_doubt:
            return []
        try:
            still = await asyncio.wrap_future(self._store.heartbeat(self._worker, self._lease_s))
            unknown = still - {job_id for job_id, _ in (*ours, *held)}
            settled = settled and not self._is_claiming()
            strays = unknown & self._unknown if settled else set()
            self._unknown = unknown if settled else set()
            self.in_doubt = bool(unknown)
            if strays:
                logger.warning("claims that were never heard of go back: %d", len(strays))
                await asyncio.wrap_future(self._store.release(self._worker, strays))
        except StoreFailed as error:
            logger.warning("no heartbeat: %s", error)
            return []
        return [kept for (job_id, _), kept in ours.items() if job_id not in still]
