"""`/v1/files` and `/v1/batches`: OpenAI's batches, many requests in a file that run on idle slots.

A file, or a batch, belongs to the key that made it; another key gets 404. Without keys all of them
are shared.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forebay.api.batches import (
    Batch,
    BatchFaults,
    BatchList,
    File,
    FileDeleted,
    FileList,
    RequestCounts,
)
from forebay.api.batches import NewBatch as NewBatchBody
from forebay.api.fields import OMITTED
from forebay.errors import NotAllowed, Rejected, StoreFailed
from forebay.gateway.errors.http_error import HttpError, invalid, unsupported
from forebay.gateway.http.authorization import log_admin_action, seen_by
from forebay.gateway.http.multipart import UploadForm
from forebay.gateway.http.store_timeout import store_unavailable
from forebay.gateway.jobs.service import from_store
from forebay.gateway.routes.jobs import checked_name
from forebay.gateway.routes.json_answer import json_answer
from forebay.jobs.batches.batch import LIST_MAX as BATCHES_MAX
from forebay.jobs.batches.batch import STATUSES, NewBatch
from forebay.jobs.batches.batch import is_name as is_batch_name
from forebay.jobs.batches.file import LIST_MAX as FILES_MAX
from forebay.jobs.batches.file import Listing
from forebay.jobs.batches.file import is_name as is_file_name
from forebay.shares import UPLOADS, Places

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractContextManager

    from starlette.requests import Request

    from forebay.gateway.http.authorization import Authorizer, OwnerNames
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.jobs.engine import JobEngine
    from forebay.gateway.jobs.service import JobService
    from forebay.gateway.readiness import Readiness
    from forebay.jobs.batches.batch import StoredBatch
    from forebay.jobs.batches.file import StoredFile

T = TypeVar("T")
P = TypeVar("P")

UPLOADS_OF_KEY = UPLOADS.places // 4
"""Concurrent uploads of one key."""
READ_BYTES = 256 * 1024
BODY_BYTES_MAX = 65_536
LIST_DEFAULT = 20


@dataclass(frozen=True)
class FileRoutes:
    """Uploading, listing, reading and deleting files."""

    authorizer: Authorizer
    reader: RequestReader
    readiness: Readiness
    jobs: JobService
    _uploading: Places = field(default_factory=lambda: Places(UPLOADS))

    def routes(self) -> list[Route]:
        return [
            Route("/v1/files", self.listed),
            Route("/v1/files", self.upload, methods=["POST"]),
            Route("/v1/files/{file_id}", self.shown),
            Route("/v1/files/{file_id}", self.delete, methods=["DELETE"]),
            Route("/v1/files/{file_id}/content", self.content),
        ]

    async def upload(self, request: Request) -> Response:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        self.readiness.check_not_draining()
        form = UploadForm(engine.files)
        with self._one_more_upload(owner):
            try:
                await form.read(request, self.reader.limit_s)
                return json_answer(file_object(await _store(form, engine, owner)))
            except StoreFailed as error:
                raise store_unavailable("the job database", error) from error
            except OSError as error:
                words = f"the file cannot be stored: {error.strerror}"
                raise HttpError("store_unavailable", words) from None
            finally:
                await form.discard()

    def _one_more_upload(self, owner: str) -> AbstractContextManager[None]:
        """Bound concurrent uploads, in all and by one key; raises HttpError."""
        if self.authorizer.needs_keys and self._uploading.held[owner] >= UPLOADS_OF_KEY:
            raise HttpError(UPLOADS.code, "too many uploads are in progress")
        return self.authorizer.place(owner, self._uploading)

    async def listed(self, request: Request) -> Response:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        given = request.query_params
        order, purpose = given.get("order", "desc"), given.get("purpose")
        if order not in ("asc", "desc"):
            raise invalid("order must be asc or desc", "order")
        if "\0" in (purpose or ""):  # a database cannot look for it
            raise invalid("purpose holds a NUL character", "purpose")
        wanted = Listing(
            purpose,
            limit_of(request, FILES_MAX, FILES_MAX),
            given.get("after"),
            cast("Literal['asc', 'desc']", order),
        )
        page = None
        if wanted.after is None or is_file_name(wanted.after):
            page = await from_store(engine.files.list(owner, wanted))
        if page is None:
            raise unknown_after()
        shown = [file_object(file) for file in page.files]
        return json_answer(_page(FileList, shown, page.has_more))

    async def shown(self, request: Request) -> Response:
        file, _ = await self._find(request)
        return json_answer(file_object(file))

    async def content(self, request: Request) -> Response:
        file, engine = await self._find(request)
        try:
            opened = await blocking(lambda: engine.files.read(file.name), "file_id")
        except FileNotFoundError:  # deleted a moment ago
            raise _no_file() from None
        headers = {"content-length": str(file.bytes)}
        return StreamingResponse(_pieces(opened), 200, headers, "application/octet-stream")

    async def delete(self, request: Request) -> Response:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        name = request.path_params["file_id"]
        delete = engine.files.delete
        if not is_file_name(name) or not await blocking(lambda: delete(name, owner), "file_id"):
            raise _no_file()
        return json_answer(FileDeleted(name))

    async def _find(self, request: Request) -> tuple[StoredFile, JobEngine]:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        name = request.path_params["file_id"]
        file = await from_store(engine.files.get(name, owner)) if is_file_name(name) else None
        if file is None:
            raise _no_file()
        return file, engine


async def _store(form: UploadForm, engine: JobEngine, owner: str) -> StoredFile:
    purpose = form.fields.pop("purpose", None)
    if purpose is None:
        raise invalid("the form has no purpose", "purpose")
    if purpose != "batch":
        raise invalid('purpose must be "batch"', "purpose")
    for name in form.fields:
        raise unsupported(name.partition("[")[0][:64])
    upload = form.upload
    assert upload is not None
    store = engine.files.store
    return await blocking(lambda: store(upload, owner, form.filename, purpose), "file")


async def owner_and_engine(
    request: Request, authorizer: Authorizer, jobs: JobService
) -> tuple[str, JobEngine]:
    """Return whose files and batches a caller asks for, and where they are."""
    caller = authorizer.caller(request)
    return caller.owner_id, await jobs.ready()


async def blocking(work: Callable[[], T], param: str | None = None) -> T:
    """Run blocking work in a thread, to its end even if the client disconnects; raises HttpError.

    `param` is the field at fault where the work is not allowed.
    """
    try:
        return await asyncio.shield(asyncio.to_thread(work))
    except StoreFailed as error:
        raise store_unavailable("the job database", error) from error
    except (NotAllowed, Rejected) as error:
        raise HttpError(error.code, str(error), getattr(error, "param", param)) from None


def limit_of(request: Request, default: int, most: int) -> int:
    """Return how many entries of a list are asked for; raises HttpError."""
    text = request.query_params.get("limit", str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise invalid(f"limit must be a number from 1 to {most}", "limit")
    return int(text)


def unknown_after() -> HttpError:
    """Return the error for a page that begins after an unknown id."""
    return invalid("after is not the id of an existing object", "after")


def file_object(file: StoredFile) -> File:
    """Return a file as OpenAI shows it."""
    return File(
        id=file.name,
        bytes=file.bytes,
        created_at=int(file.created_at),
        filename=file.filename,
        purpose=file.purpose,
    )


def _page(kind: Callable[..., P], data: Sequence[File | Batch], has_more: bool) -> P:
    """Return a page of a list as OpenAI shows it."""
    ends = (data[0].id, data[-1].id) if data else (None, None)
    return kind(data, first_id=ends[0], last_id=ends[1], has_more=has_more)


def _no_file() -> HttpError:
    return HttpError("not_found", "there is no file with that id", "file_id")


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, READ_BYTES):
            yield piece
    finally:
        file.close()


class BatchRequest(NewBatchBody, forbid_unknown_fields=True):
    """A new batch, and what OpenAI's API has for it that is not offered."""

    output_expires_after: Any | UnsetType = UNSET


@dataclass(frozen=True)
class BatchRoutes:
    """Creating, listing, showing and cancelling batches."""

    authorizer: Authorizer
    reader: RequestReader
    jobs: JobService

    def routes(self) -> list[Route]:
        return [
            Route("/v1/batches", self.listed),
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches/{batch_id}", self.shown),
            Route("/v1/batches/{batch_id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        asked = await self.reader.decode(request, BODY_BYTES_MAX, BatchRequest)
        if asked.output_expires_after is not UNSET:
            raise unsupported("output_expires_after")
        if not is_file_name(asked.input_file_id):
            raise invalid("there is no file with that id", "input_file_id")
        new = NewBatch(asked.input_file_id, asked.endpoint, asked.completion_window, asked.metadata)
        batch = await blocking(lambda: engine.batches.create(owner, new))
        return json_answer(batch_object(batch))

    async def listed(self, request: Request) -> Response:
        """List the caller's batches, an admin's everybody's, the newest first."""
        owner, engine = await self._seen_and_engine(request)
        limit, given = limit_of(request, LIST_DEFAULT, BATCHES_MAX), request.query_params
        after, status = given.get("after"), given.get("status")
        if status is not None and status not in STATUSES:
            raise invalid(f"`status` must be one of {', '.join(STATUSES)}", "status")
        model = checked_name(given.get("model"), "model")
        page = None
        if after is None or is_batch_name(after):
            listed = engine.batches.list(owner, limit, after, status, model)
            page = await from_store(listed)
        if page is None:
            raise unknown_after()
        shown = [
            batch_object(batch, names=self.authorizer.names_for(owner)) for batch in page.batches
        ]
        return json_answer(_page(BatchList, shown, page.has_more))

    async def shown(self, request: Request) -> Response:
        owner, engine = await self._seen_and_engine(request)
        name = request.path_params["batch_id"]
        batch = await from_store(engine.batches.get(name, owner)) if is_batch_name(name) else None
        return _answer(batch, names=self.authorizer.names_for(owner))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch; results that exist are kept."""
        caller = self.authorizer.caller(request)
        owner, engine = seen_by(caller), await self.jobs.ready()
        name, batch = request.path_params["batch_id"], None
        if is_batch_name(name):
            batch = await blocking(lambda: engine.batches.cancel(name, owner), "batch_id")
        if batch is not None:
            log_admin_action("batch cancelled", caller, batch.owner, name)
        return _answer(batch, names=self.authorizer.names_for(owner))

    async def _seen_and_engine(self, request: Request) -> tuple[str | None, JobEngine]:
        """Return whose batches a caller sees, None for everybody's, and where they are."""
        return seen_by(self.authorizer.caller(request)), await self.jobs.ready()


def _answer(batch: StoredBatch | None, names: OwnerNames | None) -> Response:
    if batch is None:
        raise HttpError("not_found", "there is no batch with that id", "batch_id")
    return json_answer(batch_object(batch, names))


def batch_object(batch: StoredBatch, names: OwnerNames | None = None) -> Batch:
    """Return a batch as OpenAI shows it, and for admins whose it is."""
    return Batch(
        id=batch.name,
        status=batch.status,
        endpoint=batch.endpoint,
        errors=None if batch.errors is None else _FAULTS.decode(batch.errors),
        input_file_id=batch.input_file,
        completion_window=batch.completion_window,
        output_file_id=batch.output_file,
        error_file_id=batch.error_file,
        created_at=_whole(batch.created_at),
        in_progress_at=_whole(batch.in_progress_at),
        expires_at=_whole(batch.expires_at),
        finalizing_at=_whole(batch.finalizing_at),
        completed_at=_whole(batch.completed_at),
        failed_at=_whole(batch.failed_at),
        expired_at=_whole(batch.expired_at),
        cancelling_at=_whole(batch.cancelling_at),
        cancelled_at=_whole(batch.cancelled_at),
        request_counts=RequestCounts(batch.total, batch.completed, batch.failed),
        models=list(batch.models),
        metadata=None if batch.metadata is None else _METADATA.decode(batch.metadata),
        owner=OMITTED if names is None else names(batch.owner),
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


_FAULTS: Final = msgspec.json.Decoder(BatchFaults)
_METADATA: Final = msgspec.json.Decoder(dict[str, str])
