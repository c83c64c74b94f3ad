"""`/v1/batches`: OpenAI's batches, many requests in a file that run on idle slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError, invalid, unsupported
from forebay.gateway.jobs.service import from_store
from forebay.gateway.routes.files import (
    blocking,
    limit_of,
    list_object,
    owner_and_engine,
    unknown_after,
)
from forebay.gateway.routes.json_answer import json_answer
from forebay.jobs.batches import file as files
from forebay.jobs.batches.batch import LIST_MAX, NewBatch, is_name

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.jobs.service import JobService
    from forebay.jobs.batches.batch import StoredBatch

BODY_BYTES_MAX = 65_536
LIST_DEFAULT = 20

_TIMES = (
    "created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at",
    "expired_at", "cancelling_at", "cancelled_at",
)  # fmt: skip


class NewBatchBody(Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/batches`; a field that would be ignored is an error instead."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
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
        asked = await self.reader.decode(request, BODY_BYTES_MAX, NewBatchBody)
        if asked.output_expires_after is not UNSET:
            raise unsupported("output_expires_after")
        if not files.is_name(asked.input_file_id):
            raise invalid("there is no file of that id", "input_file_id")
        new = NewBatch(asked.input_file_id, asked.endpoint, asked.completion_window, asked.metadata)
        batch = await blocking(lambda: engine.batches.create(owner, new))
        return json_answer(batch_object(batch))

    async def listed(self, request: Request) -> Response:
        """List the caller's batches, the newest first."""
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        limit, after = limit_of(request, LIST_DEFAULT, LIST_MAX), request.query_params.get("after")
        page = None
        if after is None or is_name(after):
            page = await from_store(engine.batches.list(owner, limit, after))
        if page is None:
            raise unknown_after()
        shown = [batch_object(batch) for batch in page.batches]
        return json_answer(list_object(shown, page.has_more))

    async def shown(self, request: Request) -> Response:
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        name = request.path_params["batch_id"]
        batch = await from_store(engine.batches.get(name, owner)) if is_name(name) else None
        return _answer(batch)

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch; results that exist are kept."""
        owner, engine = await owner_and_engine(request, self.authorizer, self.jobs)
        name, batch = request.path_params["batch_id"], None
        if is_name(name):
            batch = await blocking(lambda: engine.batches.cancel(name, owner), "batch_id")
        return _answer(batch)


def _answer(batch: StoredBatch | None) -> Response:
    if batch is None:
        raise HttpError("not_found", "there is no batch of that id", "batch_id")
    return json_answer(batch_object(batch))


def batch_object(batch: StoredBatch) -> dict[str, object]:
    """Return a batch as OpenAI shows it."""
    shown: dict[str, object] = {
        "id": batch.name,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": None if batch.errors is None else msgspec.Raw(batch.errors.encode()),
        "input_file_id": batch.input_file,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
    }
    for name in _TIMES:
        at = getattr(batch, name)
        shown[name] = None if at is None else int(at)
    shown["request_counts"] = {
        "total": batch.total,
        "completed": batch.completed,
        "failed": batch.failed,
    }
    shown["metadata"] = None if batch.metadata is None else msgspec.Raw(batch.metadata.encode())
    return shown
