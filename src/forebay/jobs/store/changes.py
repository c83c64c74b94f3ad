"""Small things that the store does with jobs and futures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from forebay.jobs.job import Change, Job, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


def change_of(
    job: Job, before: Status, waited_s: float | None = None, status: Status | None = None
) -> Change:
    """Return the change that a job has just gone through."""
    now = status or job.status
    return Change(
        job.id, job.task_type, job.queue, now, before, None, job.batch_id, waited_s, job.fence
    )  # fmt: skip


def storable(text: str | None) -> str | None:
    """Return text that every database takes: no NUL, no half of a surrogate pair.

    It comes from handlers and nodes; a text that cannot be stored must not cost the outcome.
    """
    if text is None:
        return None
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def mapped(future: Future[Any], turn: Callable[[Any], Any]) -> Future[Any]:
    """Return a future of what `turn` makes of the result."""
    mapped: Future[Any] = type(future)()

    def done(done: Future[Any]) -> None:
        if not mapped.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is not None:
            mapped.set_exception(error)
        else:
            mapped.set_result(turn(done.result()))

    future.add_done_callback(done)
    return mapped


async def in_time(asked: Future[Any], limit_s: float) -> bool:
    """Wait for the store's answer, but not for long; say whether it has come."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    asked.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    timer = loop.call_later(limit_s, ended.set)  # the store lives in real time
    try:
        await ended.wait()
    finally:
        timer.cancel()
    return asked.done()
