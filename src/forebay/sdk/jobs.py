"""Jobs (`/jobs`): an accepted job continues whether or not a client waits."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
from msgspec import Raw, Struct

from forebay.api.jobs import JobAccepted, JobSubmission
from forebay.sdk.errors import GatewayAway, WaitTooLong
from forebay.sdk.transport import ApiCall, Outage, decoded, query
from forebay.sdk.values import Job
from forebay.sse import SseEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from forebay.sdk.errors import SdkError
    from forebay.sdk.transport import Transport

SILENCE_S = 60.0
"""The gateway sends a comment every 15 s; four times that is silence."""
ASK_S = 1.0


class JobList(Struct):
    """Some of the jobs."""

    data: list[Job]


class JobOptions(TypedDict, total=False):
    """What a submission can say beside what is to be done."""

    job_id: int
    """Your own number for what it is about; the same work twice is one job."""
    model: str
    priority: str
    idempotency_key: str


class JobMethods:
    """What a client can do with jobs."""

    _transport: Transport

    async def submit(self, task_type: str, params: Any, **options: Unpack[JobOptions]) -> Job:
        """Hand in durable work; `job.is_new` is False where the same is under way already.

        Only with an idempotency key is a lost answer asked for again.
        """
        new = JobSubmission(task_type, Raw(msgspec.json.encode(params)), **options)
        call = ApiCall("POST", "/jobs", new, is_repeatable=new.idempotency_key is not None)
        added = await self._transport.ask(call, JobAccepted)
        return Job(
            added.id, added.status, task_type, model=options.get("model"), is_new=added.is_new
        )

    async def job(self, number: int) -> Job:
        """Return all about one job, its result included."""
        return await self._transport.get(f"/jobs/{number}", Job)

    async def jobs(
        self,
        *,
        status: str | None = None,
        task_type: str | None = None,
        model: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first, without what is large; `before` a number, for more."""
        asked = query(status=status, type=task_type, model=model, before=before, limit=limit)
        return (await self._transport.get(f"/jobs{asked}", JobList)).data

    async def wait_job(
        self,
        number: int,
        *,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Return a job when it has ended, well or not; raises WaitTooLong after `timeout_s`."""
        return await wait_for_job(self._transport, number, timeout_s, on_change)

    async def cancel_job(self, number: int) -> Job:
        """End a job, queued or running, and return it."""
        await self._transport.fetch(ApiCall("DELETE", f"/jobs/{number}"))
        return await self.job(number)

    async def retry_job(self, number: int) -> Job:
        """Let a job that failed or was cancelled run again, and return it."""
        await self._transport.fetch(ApiCall("POST", f"/jobs/{number}/retry"))
        return await self.job(number)


async def wait_for_job(
    transport: Transport,
    job_id: int,
    limit_s: float | None,
    on_change: Callable[[Job], object] | None,
    on_outage: Callable[[SdkError | None], object] | None = None,
) -> Job:
    """Return a job when it has ended; raises WaitTooLong after `limit_s`, and SdkError.

    `on_outage` is called with the reason when the gateway goes away, with None when it is back.
    """
    follower = _JobFollower(transport, job_id, on_change)
    outage = Outage(transport, on_outage)
    try:
        async with asyncio.timeout(limit_s):
            while not (job := await outage.until_answered(follower.look)).ended:
                await transport.pause(ASK_S)
            return job
    except TimeoutError as error:
        raise WaitTooLong(f"job {job_id} has not ended within {limit_s:g} s") from error


class _JobFollower:
    """Follows the events of one job; when they end, for whatever reason, asks."""

    def __init__(
        self,
        transport: Transport,
        job_id: int,
        on_change: Callable[[Job], object] | None,
    ) -> None:
        self._transport = transport
        self._job_id = job_id
        self._on_change = on_change
        self._seen: tuple[object, ...] = ()

    async def look(self) -> Job:
        """Return the job as it stands when its events have ended; raises SdkError."""
        await self._listen()
        job = await self._transport.get(f"/jobs/{self._job_id}", Job)
        self._note(job)
        return job

    async def _listen(self) -> None:
        """Hear of changes until the events end, for whatever reason."""
        call = ApiCall("GET", f"/jobs/{self._job_id}/events", is_repeatable=True, read_s=SILENCE_S)
        async with self._transport.opened(call) as response:
            try:
                async with aclosing(self._transport.events(response)) as coming:
                    async for found in coming:
                        if isinstance(found, SseEvent):
                            self._note(decoded(found.data, Job))
            except GatewayAway:
                return  # asked for next

    def _note(self, job: Job) -> None:
        now = (job.status, job.stage, job.attempt)
        if now != self._seen:  # it is told again after a line that was cut
            self._seen = now
            if self._on_change is not None:
                self._on_change(job)
