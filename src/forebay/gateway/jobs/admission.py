"""Validation of jobs of the built-in types: their params are read like a live request's body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.json_body import in_turns
from forebay.jobs.builtin import FAMILY, ROUTES
from forebay.relay.members import InvalidBody, scan_members

if TYPE_CHECKING:
    from collections.abc import Generator

    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.hot.model_names import ModelNames


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
    unsupported = fields.unsupported()
    if unsupported is not None:
        param = f"params.{unsupported.param}"
        raise HttpError("unsupported", unsupported.message, param)
    if FAMILY.is_stream(fields, ROUTES[task_type]):
        words = "nobody listens to a job: leave out `stream`"
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
