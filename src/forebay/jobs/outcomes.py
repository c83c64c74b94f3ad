"""The outcome of a claimed job, and how it is recorded.

A result that a GPU has worked for minutes on is worth waiting for: recording is retried with
backoff while the store is unavailable. What is still not recorded when the program ends is running
in the store, and found there by the next start. The store refuses what is no longer ours to say.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from forebay.errors import StoreFailed
from forebay.jobs.job import Failure
from forebay.jobs.store.change_bus import call_soon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import StoredJob
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.jobs")

RETRY_S_FIRST = 0.1
RETRY_S_MAX = 5.0


class Completed(Struct, frozen=True):
    """There is a result."""

    result: str
    """JSON."""


class Requeued(Struct, frozen=True):
    """It was stopped before its end, and goes back to its place without losing an attempt."""


class CancelledHere(Struct, frozen=True):
    """An operator cancelled its request in the queue of live requests."""


Outcome: TypeAlias = Completed | Failure | Requeued | CancelledHere


async def record(
    store: JobStore,
    claimed: ClaimedJob,
    outcome: Outcome,
    unstorable: Callable[[BaseException], Failure],
    wait_to_retry: Callable[[float], Awaitable[bool]],
) -> None:
    """Write an outcome until the store has recorded or refused it.

    `unstorable` returns what is recorded in place of an outcome that the store cannot hold.
    `wait_to_retry` waits for so many seconds, and returns False if the program ends before.
    """
    job, pause_s, replaced = claimed.job, RETRY_S_FIRST, False
    for tries in count():
        written = _write(store, job, outcome)
        await settled(written)
        error = written.exception()
        if error is None:
            if not written.result() and not tries:  # else the first was written after all
                logger.info(
                    "job %d: outcome refused, it %s", job.id,
                    claimed.revoked or "was taken over",
                    extra={"action": "refused", "job": job.id},
                )  # fmt: skip
            return
        if isinstance(error, StoreFailed):
            logger.warning("job %d: outcome not recorded yet: %s", job.id, error)
            if not await wait_to_retry(pause_s):
                logger.error("job %d: outcome not recorded, the store is unavailable", job.id)
                return
            pause_s = min(2 * pause_s, RETRY_S_MAX)
            continue
        logger.error("job %d: outcome cannot be stored", job.id, exc_info=error)
        if replaced:  # not even the reason can
            return
        outcome, replaced = unstorable(error), True


def _write(store: JobStore, job: StoredJob, outcome: Outcome) -> Future[bool]:
    match outcome:
        case Completed(result):
            return store.complete(job, result)
        case Failure():
            return store.fail(job, outcome)
        case Requeued():
            return store.give_back(job, tried=False)
        case CancelledHere():
            return store.cancel_held(job)


async def settled(future: Future[Any], limit_s: float | None = None) -> None:
    """Wait until a future of the store is done, or for so long; take no result."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    future.add_done_callback(lambda _: call_soon(loop, over.set))
    # The store lives in real time.
    timer = None if limit_s is None else loop.call_later(limit_s, over.set)
    try:
        await over.wait()
    finally:
        if timer is not None:
            timer.cancel()
