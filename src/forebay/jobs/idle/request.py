"""One job of a built-in type as a request to a node, from its call to its outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.jobs.builtin import make_call
from forebay.jobs.idle.sink import JobSink, to_outcome
from forebay.jobs.job import Failure
from forebay.jobs.outcomes import Requeued
from forebay.jobs.store.change_bus import call_soon
from forebay.relay.members import InvalidBody
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from forebay.jobs.builtin import Resolve
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.outcomes import Outcome
    from forebay.relay.call import InferenceCall
    from forebay.relay.reservation import Reservation

logger = logging.getLogger("forebay.jobs")

LARGE_BYTES = 524_288
"""What is larger is parsed beside the event loop."""
INTERNAL_ERROR = Failure("an internal error; the log has the details", "internal_error")


async def ask_node(
    claimed: ClaimedJob, reservation: Reservation, resolve: Resolve
) -> Outcome | None:
    """Return the outcome of a job; None where whoever revoked the job has recorded one."""
    loop, sink = asyncio.get_running_loop(), JobSink()
    claimed.on_revoke(lambda: call_soon(loop, sink.abandon))
    try:
        call = await _call_of(claimed, reservation, resolve, sink)
        if call is not None:
            sink.carries(reservation.begin(call, sink))
        answer = await sink.answer
        if answer is None:
            return Requeued() if claimed.revoked == "was stopped" else None
        made = (claimed.job, reservation.id, answer)
        if sink.size < LARGE_BYTES:
            return to_outcome(*made)
        return await asyncio.to_thread(to_outcome, *made)
    except Exception:  # a bug of ours fails the job, or it would be running for ever
        logger.exception("job %d could not be run", claimed.job.id)
        return INTERNAL_ERROR


async def _call_of(
    claimed: ClaimedJob, reservation: Reservation, resolve: Resolve, sink: JobSink
) -> InferenceCall | None:
    """Return the job's request; None, where it is settled why it cannot be sent."""
    if claimed.revoked:
        return None
    job = claimed.job
    model, fallbacks = resolve(job.model)
    make = (job, reservation.id, reservation.model or model, fallbacks)
    is_large = len(job.params) >= LARGE_BYTES
    try:
        call = await asyncio.to_thread(make_call, *make) if is_large else make_call(*make)
    except (InvalidBody, KeyError, StopIteration) as error:
        sink.failed(Problem("invalid_request", f"the params cannot be used: {error}"), None)
        return None
    return None if claimed.revoked else call  # meanwhile
