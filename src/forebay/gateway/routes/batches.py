"""OpenAI's batches: many requests in a file, run when there is room, answered in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.json_body import read_body
from forebay.gateway.routes.files import (
    answered,
    asked,
    blocking,
    limit_of,
    list_object,
    unknown_after,
    unsupported,
)
from forebay.gateway.routes.status import json_answer
from forebay.jobs.batches import file as files
from forebay.jobs.batches.batch import (
    LIST_MAX,
    BadBatch,
    BatchesFull,
    NewBatch,
    NotCancellable,
    is_name,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from forebay.gateway.parts import Parts
    from forebay.jobs.batches.batch import Batch

BODY_BYTES_MAX = 65_536
LIST_DEFAULT = 20

_TIMES = (
    "created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at",
    "expired_at", "cancelling_at", "cancelled_at",
)  # fmt: skip


class _Wanted(Struct, forbid_unknown_fields=True):
    """What may be in a body; a field that would be ignored is refused instead."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: Any | UnsetType = UNSET


class BatchRoutes:
    """The routes under `/v1/batches`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route("/v1/batches", self.listed),
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches/{batch_id}", self.shown),
            Route("/v1/batches/{batch_id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Start a batch."""
        owner, jobs = await asked(self._parts, request)
        body = await read_body(request, BODY_BYTES_MAX, self._parts.settings.server.body_seconds)
        new = _parsed(body)
        try:
            return json_answer(
                batch_object(await blocking(lambda: jobs.batches.create(owner, new)))
            )
        except BadBatch as error:
            raise invalid(str(error), error.param) from None
        except BatchesFull as error:
            raise HttpError("batches_full", str(error)) from None

    async def listed(self, request: Request) -> Response:
        """List the caller's batches, the newest first."""
        owner, jobs = await asked(self._parts, request)
        limit, after = limit_of(request, LIST_DEFAULT, LIST_MAX), request.query_params.get("after")
        page = None
        if after is None or is_name(after):
            page = await answered(jobs.batches.list(owner, limit, after))
        if page is None:
            raise unknown_after()
        shown = [batch_object(batch) for batch in page.batches]
        return json_answer(list_object(shown, page.has_more))

    async def shown(self, request: Request) -> Response:
        """Show one batch."""
        owner, jobs = await asked(self._parts, request)
        name = request.path_params["batch_id"]
        batch = await answered(jobs.batches.get(name, owner)) if is_name(name) else None
        if batch is None:
            raise _no_batch()
        return json_answer(batch_object(batch))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch: what is done is kept, what is not is ended."""
        owner, jobs = await asked(self._parts, request)
        name = request.path_params["batch_id"]
        batch = None
        try:
            if is_name(name):
                batch = await blocking(lambda: jobs.batches.cancel(name, owner))
        except NotCancellable as error:
            raise HttpError("conflict", str(error), "batch_id") from None
        if batch is None:
            raise _no_batch()
        return json_answer(batch_object(batch))


def batch_object(batch: Batch) -> dict[str, object]:
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


def _parsed(body: bytes) -> NewBatch:
    try:
        wanted = msgspec.json.decode(body, type=_Wanted)
    except msgspec.ValidationError as error:
        raise invalid(str(error), _field_of(str(error))) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise invalid("the body is not valid JSON", "body") from None
    if wanted.output_expires_after is not UNSET:
        raise unsupported("output_expires_after")
    if not files.is_name(wanted.input_file_id):
        raise invalid("there is no file of that id", "input_file_id")
    return NewBatch(
        wanted.input_file_id, wanted.endpoint, wanted.completion_window, wanted.metadata
    )


def _field_of(message: str) -> str:
    """Return the field that msgspec complains about.

    >>> _field_of("Expected `str`, got `int` - at `$.endpoint`")
    'endpoint'
    >>> _field_of("Object missing required field `endpoint`")
    'endpoint'
    """
    _, _, place = message.partition(" - at `")
    if place:
        return place.lstrip("$.").rstrip("`").partition("[")[0].partition(".")[0] or "body"
    _, _, name = message.partition("field `")
    return name.rstrip("`") or "body"


def _no_batch() -> HttpError:
    return HttpError("not_found", "there is no batch of that id", "batch_id")
