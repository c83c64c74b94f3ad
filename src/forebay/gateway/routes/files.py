"""OpenAI's files: uploaded for batches, and what batches leave behind.

Files belong to the key that stored them; another key's are not found. Without keys they are
everyone's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, BinaryIO, Literal, NoReturn, TypeVar, cast

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forebay.errors import StoreFailed
from forebay.gateway.errors.http_error import HttpError, invalid, shutting_down
from forebay.gateway.http.multipart import UploadForm
from forebay.gateway.http.store_timeout import in_time
from forebay.gateway.routes.status import json_answer
from forebay.jobs.batches.file import LIST_MAX, FileInUse, FilesFull, Listing, is_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from concurrent.futures import Future

    from starlette.requests import Request

    from forebay.gateway.jobs.service import Jobs
    from forebay.gateway.parts import Parts
    from forebay.jobs.batches.file import StoredFile

T = TypeVar("T")

UPLOADS_MAX = 32
"""Uploads at once, of one key a quarter of them; more are refused. Bounds what unfinished ones may
take of the disk."""
READ_BYTES = 256 * 1024


class FileRoutes:
    """The routes under `/v1/files`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._uploading: Counter[str] = Counter()
        self.routes = [
            Route("/v1/files", self.listed),
            Route("/v1/files", self.upload, methods=["POST"]),
            Route("/v1/files/{file_id}", self.shown),
            Route("/v1/files/{file_id}", self.delete, methods=["DELETE"]),
            Route("/v1/files/{file_id}/content", self.content),
        ]

    async def upload(self, request: Request) -> Response:
        """Take in a file."""
        owner, jobs = await asked(self._parts, request)
        if self._parts.draining:
            raise shutting_down()
        form = UploadForm(jobs.files)
        with self._one_more_upload(owner):
            try:
                await form.read(request, self._parts.settings.server.body_seconds)
                return json_answer(file_object(await self._store(form, jobs, owner)))
            except StoreFailed as error:
                _refuse(error)
            except OSError as error:
                raise HttpError(
                    "store_unavailable", f"the file cannot be kept: {error.strerror}"
                ) from None
            finally:
                await form.discard()

    @contextlib.contextmanager
    def _one_more_upload(self, owner: str) -> Iterator[None]:
        """Bound what is being uploaded, in all and by one key; raises HttpError."""
        most = UPLOADS_MAX if not self._parts.keys else UPLOADS_MAX // 4
        if self._uploading.total() >= UPLOADS_MAX or self._uploading[owner] >= most:
            raise HttpError("too_many_connections", "too many uploads are under way")
        self._uploading[owner] += 1
        try:
            yield
        finally:
            self._uploading[owner] -= 1
            if not self._uploading[owner]:
                del self._uploading[owner]

    async def _store(self, form: UploadForm, jobs: Jobs, owner: str) -> StoredFile:
        purpose = form.fields.pop("purpose", None)
        if purpose is None:
            raise invalid("the form has no purpose", "purpose")
        if purpose != "batch":
            raise invalid('purpose must be "batch"', "purpose")
        for name in form.fields:
            raise unsupported(name.partition("[")[0][:64])
        upload = form.upload
        assert upload is not None
        return await blocking(lambda: jobs.files.store(upload, owner, form.filename, purpose))

    async def listed(self, request: Request) -> Response:
        """List the caller's files."""
        owner, jobs = await asked(self._parts, request)
        given = request.query_params
        order = given.get("order", "desc")
        if order not in ("asc", "desc"):
            raise invalid("order must be asc or desc", "order")
        wanted = Listing(
            plain(given.get("purpose"), "purpose"),
            limit_of(request, LIST_MAX, LIST_MAX),
            given.get("after"),
            cast("Literal['asc', 'desc']", order),
        )
        page = None
        if wanted.after is None or is_name(wanted.after):
            page = await answered(jobs.files.list(owner, wanted))
        if page is None:
            raise unknown_after()
        return json_answer(list_object([file_object(file) for file in page.files], page.has_more))

    async def shown(self, request: Request) -> Response:
        """Show one file."""
        owner, jobs = await asked(self._parts, request)
        return json_answer(file_object(await self._find(request, jobs, owner)))

    async def content(self, request: Request) -> Response:
        """Return what is in a file."""
        owner, jobs = await asked(self._parts, request)
        file = await self._find(request, jobs, owner)
        try:
            opened = await blocking(lambda: jobs.files.read(file.name))
        except FileNotFoundError:  # deleted a moment ago
            raise _no_file() from None
        headers = {"content-length": str(file.bytes)}
        return StreamingResponse(_pieces(opened), 200, headers, "application/octet-stream")

    async def delete(self, request: Request) -> Response:
        """Delete a file."""
        owner, jobs = await asked(self._parts, request)
        name = request.path_params["file_id"]
        if not is_name(name) or not await blocking(lambda: jobs.files.delete(name, owner)):
            raise _no_file()
        return json_answer({"id": name, "object": "file", "deleted": True})

    async def _find(self, request: Request, jobs: Jobs, owner: str) -> StoredFile:
        name = request.path_params["file_id"]
        file = await answered(jobs.files.get(name, owner)) if is_name(name) else None
        if file is None:
            raise _no_file()
        return file


async def asked(parts: Parts, request: Request) -> tuple[str, Jobs]:
    """Return whose files and batches are asked for, and where they are; raises HttpError."""
    caller = parts.authorizer.caller(request)
    await parts.jobs.ready()
    return caller.key.name if caller.key is not None else "", parts.jobs


async def answered(future: Future[T]) -> T:
    """Wait for the database; raises HttpError."""
    try:
        return await in_time(future)
    except StoreFailed as error:
        _refuse(error)


async def blocking(work: Callable[[], T]) -> T:
    """Run what blocks in a thread, to its end even if the client leaves; raises HttpError."""
    try:
        return await asyncio.shield(asyncio.to_thread(work))
    except (StoreFailed, FilesFull, FileInUse) as error:
        _refuse(error)


def limit_of(request: Request, default: int, most: int) -> int:
    """Return how many are asked for; raises HttpError."""
    text = request.query_params.get("limit", str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise invalid(f"limit must be a number from 1 to {most}", "limit")
    return int(text)


def plain(text: str | None, name: str) -> str | None:
    """Return a text that a database can look for; raises HttpError."""
    if text is not None and "\0" in text:
        raise invalid(f"{name} holds a NUL character", name)
    return text


def unsupported(name: str) -> HttpError:
    """Return the refusal of a field that would be ignored."""
    return HttpError("unsupported", f"{name} is not offered here", name)


def unknown_after() -> HttpError:
    """Return the refusal of a list that begins nowhere."""
    return invalid("after is the id of nothing that is there", "after")


def file_object(file: StoredFile) -> dict[str, object]:
    """Return a file as OpenAI shows it."""
    return {
        "id": file.name,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at),
        "expires_at": None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def list_object(data: list[dict[str, object]], has_more: bool) -> dict[str, object]:
    """Return a page of a list as OpenAI shows it."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def _refuse(error: StoreFailed | FilesFull | FileInUse) -> NoReturn:
    if isinstance(error, StoreFailed):
        raise HttpError("store_unavailable", "the database of jobs cannot be used now")
    if isinstance(error, FilesFull):
        raise HttpError("files_full", str(error), "file")
    raise HttpError("conflict", str(error), "file_id")


def _no_file() -> HttpError:
    return HttpError("not_found", "there is no file of that id", "file_id")


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, READ_BYTES):
            yield piece
    finally:
        file.close()
