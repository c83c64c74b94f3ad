"""`/jobs`: durable work that needs no connected client."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw
from starlette.routing import Route

from forebay.api.fields import OMITTED
from forebay.api.jobs import Job, JobAccepted, JobLine, JobList, JobState, JobSubmission
from forebay.errors import StoreFailed
from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.authorization import log_admin_action, seen_by
from forebay.gateway.http.json_body import decode_body, in_turns
from forebay.gateway.http.sse import EventStreamResponse, head_response
from forebay.gateway.http.store_timeout import in_time
from forebay.gateway.jobs.service import from_store
from forebay.gateway.routes.json_answer import json_answer
from forebay.jobs.builtin import FAMILY, ROUTES, queue_of
from forebay.jobs.job import PRIORITIES, STATUSES, NewJob, Status, StoredJob
from forebay.jobs.runner.validation import warn_if_full
from forebay.relay.members import InvalidBody, scan_members
from forebay.shares import JOB_STREAMS, Places

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.hot.model_names import ModelNames
    from forebay.gateway.http.authorization import Authorizer, OwnerNames
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.jobs.engine import JobEngine
    from forebay.gateway.jobs.service import JobService
    from forebay.gateway.readiness import Readiness

BODY_BYTES_MAX = 8_388_608
"""A job is a row of a database: larger input belongs into a file."""
LIMIT_MAX = 1000
STATUS_LENGTH_MAX = 32
HEARTBEAT_S = 15.0
WAITS_FOR = {
    "rate": "waits for the rate of its key",
    "key": "waits until another request of its key ends (max_running)",
}
"""The stage of a queued job whose key must pause, or has no room for it."""
LOOK_AGAIN_S = 2.0
"""How often a followed job is read again: another gateway may have changed it."""
_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
FINAL: tuple[Status, ...] = ("completed", "failed", "cancelled")


async def check_params(
    models: ModelNames, caller: Caller, task_type: str, params: bytes, model: str | None
) -> tuple[bytes, str]:
    """Return the params and the model they ask for; raises HttpError, naming the field."""
    try:
        params = await in_turns(_with_model(params, model))
        fields = FAMILY.reader.read_small(params)
        if fields is None:
            fields = (await in_turns(FAMILY.reader.read_in_slices(params))).fields
    except InvalidBody as error:
        param = "params" if error.param == "body" else f"params.{error.param}"
        raise HttpError(error.code, f"params: {error}", param) from None
    *_, unsupported = fields.told()
    if unsupported is not None:
        param = f"params.{unsupported.param}"
        raise HttpError("unsupported", unsupported.message, param)
    if FAMILY.is_stream(fields, ROUTES[task_type]):
        words = "a job cannot stream: leave out `stream`"
        raise invalid(words, "params.stream")
    if model is not None and fields.model != model:
        words = "`model` and `params.model` differ"
        raise invalid(words, "model")
    models.check(fields.model, caller.key, FAMILY.name, "params.model")
    return params, fields.model


def _with_model(params: bytes, model: str | None) -> Generator[int, None, bytes]:
    """Return the params with the model that is given beside them, where they name none."""
    if model is None:
        return params
    first = b""
    for found in scan_members(params):
        if isinstance(found, int):
            yield found
        elif msgspec.json.decode(found[0], type=str) == "model":
            return params
        else:
            first = first or found[0]
    at = params.index(b"{") + 1
    comma = b"," if first else b""
    return b'%b"model":%b%b%b' % (params[:at], msgspec.json.encode(model), comma, params[at:])


@dataclass(frozen=True)
class JobRoutes:
    """Submitting, listing, cancelling, retrying and following jobs."""

    authorizer: Authorizer
    reader: RequestReader
    readiness: Readiness
    jobs: JobService
    models: ModelNames
    _streams: Places = field(default_factory=lambda: Places(JOB_STREAMS))

    def routes(self) -> list[Route]:
        return [
            Route("/jobs", self.submit, methods=["POST"]),
            Route("/jobs", self.list_jobs),
            Route("/jobs/{job_id}", self.show),
            Route("/jobs/{job_id}", self.cancel, methods=["DELETE"]),
            Route("/jobs/{job_id}/retry", self.retry, methods=["POST"]),
            Route("/jobs/{job_id}/events", self.events),
        ]

    async def submit(self, request: Request) -> Response:
        caller = self.authorizer.caller(request)
        self.readiness.check_not_draining()
        body = await self.reader.read(request, BODY_BYTES_MAX)
        await self.jobs.know_types()
        asked = await decode_body(body, JobSubmission, as_it_is="params")
        new = await self._new_job(asked, caller)
        store = (await self.jobs.ready()).store
        depth_max = self.jobs.settings.max_queue_depth
        owners = self.authorizer.owners
        (added,) = await from_store(store.add([new], depth_max, owners=owners))
        warn_if_full(added, new.task_type, depth_max)
        if added.status == "failed":
            words = f"{depth_max} jobs of type {new.task_type!r} are queued, which is the limit"
            raise self._queue_full(added.refusal or words, added.id, new.task_type, "type")
        return json_answer(JobAccepted(added.id, added.status, added.is_new), 202)

    async def list_jobs(self, request: Request) -> Response:
        """List jobs, newest first."""
        caller = self.authorizer.caller(request)
        query = request.query_params
        status = query.get("status")
        if status is not None and status not in STATUSES:
            near = get_close_matches(status[:STATUS_LENGTH_MAX], STATUSES, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise invalid(f"`status` must be one of {', '.join(STATUSES)}{meant}", "status")
        limit = _number(query.get("limit"), "limit", LIMIT_MAX) or 100
        owner = seen_by(caller)
        store = (await self.jobs.ready()).store
        found = await from_store(
            store.list(
                status=status,
                task_type=checked_name(query.get("type"), "type"),
                model=checked_name(query.get("model"), "model"),
                owner=owner,
                before=_number(query.get("before"), "before", 2**63 - 1),
                limit=limit + 1,
            )
        )
        names = self.authorizer.names_for(owner)
        lines = [_job_line(job, names) for job in found[:limit]]
        return json_answer(JobList(lines, True if len(found) > limit else OMITTED))

    async def show(self, request: Request) -> Response:
        caller = self.authorizer.caller(request)
        job = await self._find(request, caller)
        names = self.authorizer.names_for(seen_by(caller))
        stage, tickets = job.stage, self.jobs.engine.tickets
        if job.status == "queued" and tickets is not None:
            stage = WAITS_FOR.get(tickets.waits_for(job) or "", stage)
        return json_answer(
            Job(
                **_line_fields(job, names, stage),
                params=Raw(job.params.encode()),
                result=None if job.result is None else Raw(job.result.encode()),
                traceback=job.traceback,
            )
        )

    async def cancel(self, request: Request) -> Response:
        caller = self.authorizer.caller(request)
        job_id = _job_id(request)
        store = (await self.jobs.ready()).store
        before = await from_store(store.cancel(job_id, seen_by(caller)))
        if before is None:
            raise _not_there(job_id)
        if before.status in ("completed", "failed"):
            raise HttpError("conflict", f"job {job_id} has {before.status} already")
        log_admin_action("job cancelled", caller, before.owner, job_id)
        return json_answer(JobState(job_id, "cancelled"))

    async def retry(self, request: Request) -> Response:
        """Queue a failed or cancelled job again."""
        caller = self.authorizer.caller(request)
        job_id = _job_id(request)
        store = (await self.jobs.ready()).store
        depth_max = self.jobs.settings.max_queue_depth
        webhook = bool(self.jobs.settings.webhook_url)
        owners = self.authorizer.owners
        asked = store.retry(job_id, seen_by(caller), depth_max, owners=owners, webhook=webhook)
        retried = await from_store(asked)
        if retried.job is None:
            raise _not_there(job_id)
        if retried.full:
            raise self._queue_full(retried.full, job_id, retried.job.task_type)
        if retried.twin is not None:
            words = f"the same work is already in progress: job {retried.twin}"
            raise HttpError("conflict", words, details={"id": retried.twin})
        if retried.dropped:
            words = f"job {job_id} was refused and its params were not stored: submit it again"
            raise HttpError("conflict", words)
        if not retried.done:
            words = f"job {job_id} is {retried.job.status}: only failed and cancelled jobs are"
            raise HttpError("conflict", f"{words} tried again")
        log_admin_action("job retried", caller, retried.job.owner, job_id)
        return json_answer(JobState(job_id, "queued"), 202)

    async def events(self, request: Request) -> Response:
        """Follow one job until it has ended, as server-sent events."""
        caller = self.authorizer.caller(request)
        job = await self._find(request, caller)
        if (head := head_response(request)) is not None:
            return head
        engine = await self.jobs.ready()
        place = self.authorizer.place(caller.owner_id, self._streams)
        may_follow = self.authorizer.watch(lambda: self.authorizer.is_caller(request))
        return EventStreamResponse(_followed(engine, job, may_follow), place)

    def _queue_full(
        self, words: str, job_id: int, task_type: str, param: str | None = None
    ) -> HttpError:
        after_s, details = self.jobs.figures.place_free_s(task_type), {"id": job_id}
        return HttpError("job_queue_full", words, param, details=details, retry_after_s=after_s)

    async def _find(self, request: Request, caller: Caller) -> StoredJob:
        job_id = _job_id(request)
        store = (await self.jobs.ready()).store
        job = await from_store(store.get(job_id, seen_by(caller)))
        if job is None:
            raise _not_there(job_id)
        return job

    async def _new_job(self, asked: JobSubmission, caller: Caller) -> NewJob:
        for name in ("type", "model", "idempotency_key"):
            if not (getattr(asked, name) or "").isprintable():
                raise invalid(f"`{name}` contains unprintable characters", name)
        priority = _priority(asked, caller)
        params = b"{}" if asked.params is UNSET else bytes(asked.params)
        known = self.jobs.task_types()
        if asked.type not in known:
            near = get_close_matches(asked.type, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
            raise invalid(f"there is no task type {asked.type[:64]!r}{hint}", "type")
        model, queue = asked.model or "", ""
        if asked.type in ROUTES:
            params, model = await check_params(self.models, caller, asked.type, params, asked.model)
            queue = queue_of(model)
        return NewJob(
            asked.type,
            params.decode(),
            asked.job_id,
            queue,
            model,
            priority,
            caller.owner_id,
            asked.idempotency_key,
            webhook=bool(self.jobs.settings.webhook_url),
        )


async def _followed(
    engine: JobEngine, job: StoredJob, may_follow: Callable[[], bool]
) -> AsyncIterator[bytes]:
    followers = engine.followers
    with followers.follow(job.id) as changed:
        seen: tuple[object, ...] = ()
        silent_s = 0.0
        while True:
            now = (job.status, job.stage, job.attempt)
            if now != seen:
                seen, silent_s = now, 0.0
                yield b"event: %b\ndata: %b\n\n" % (
                    job.status.encode(),
                    msgspec.json.encode(_job_line(job)),
                )
            if job.status in FINAL or followers.stopped:
                return
            await followers.next_change(changed, LOOK_AGAIN_S)
            if not may_follow():
                return
            silent_s += LOOK_AGAIN_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield b": still here\n\n"
            with contextlib.suppress(StoreFailed):  # it will be seen when the store is back
                again = await in_time(engine.store.look(job.id))
                if again is None:
                    return
                job = again


def _priority(asked: JobSubmission, caller: Caller) -> int:
    name = "normal" if asked.priority is None else asked.priority.strip().lower()
    if name not in PRIORITIES:
        raise invalid(f"`priority` must be one of {', '.join(PRIORITIES)}", "priority")
    floor = PRIORITIES.get(caller.key.max_priority, 0) if caller.key is not None else 0
    return max(PRIORITIES[name], floor)


def _not_there(job_id: int) -> HttpError:
    return HttpError("not_found", f"there is no job {job_id}")


def _job_id(request: Request) -> int:
    given = request.path_params["job_id"]
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise HttpError("not_found", "job ids are whole numbers")
    return int(given)


def checked_name(given: str | None, name: str) -> str | None:
    """Return what a list is filtered by; raises HttpError."""
    if given is not None and not (given.isprintable() and 0 < len(given) <= 256):
        raise invalid(f"`{name}` must have 1 to 256 printable characters", name)
    return given


def _number(given: str | None, name: str, most: int) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 19 or not 1 <= int(given) <= most:
        raise invalid(f"`{name}` must be a whole number from 1 to {most}", name)
    return int(given)


def _job_line(job: StoredJob, names: OwnerNames | None = None) -> JobLine:
    """Return what a list shows: everything that is small, and for admins whose it is."""
    return JobLine(**_line_fields(job, names, job.stage))


def _line_fields(job: StoredJob, names: OwnerNames | None, stage: str | None) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.task_type,
        "status": job.status,
        "job_id": job.job_id,
        "model": job.model or None,
        "priority": _PRIORITY_NAMES.get(job.priority, "normal"),
        "idempotency_key": job.idempotency_key,
        "stage": stage,
        "attempt": job.attempt,
        "error": job.error,
        "error_code": job.error_code,
        "created_at": _seconds(job.created_at),
        "started_at": None if job.status == "queued" else _seconds(job.started_at),
        "finished_at": _seconds(job.finished_at),
        "owner": OMITTED if names is None else names(job.owner),
    }


def _seconds(time: float | None) -> float | None:
    """Return seconds since 1970, to the millisecond."""
    return None if time is None else round(time, 3)
