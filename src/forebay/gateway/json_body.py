"""Bodies of requests that are not hot: read within bounds, decoded, and refused by the field."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from forebay.gateway.asking import Refused
from forebay.relay.problem import Problem
from forebay.wire.refusals import BUSY

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")

BODY_ROOM: Final = "forebay.body_room"
"""The extension of a request's scope by which it takes memory for its body."""


async def read_body(request: Request, bytes_max: int, limit_s: float) -> bytes:
    """Read a body once there is memory for it, bounded in size and time; raises Refused."""
    body = bytearray()
    has_room = False
    try:
        async with asyncio.timeout(limit_s):
            await _take_room(request, bytes_max)
            has_room = True
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    raise Refused(
                        Problem("body_too_large", f"the body is larger than {bytes_max} bytes")
                    )
    except TimeoutError:
        if not has_room:
            raise Refused(Problem(BUSY.code, BUSY.message)) from None
        raise Refused(Problem("request_timeout", "the body took too long")) from None
    except ClientDisconnect:
        raise Refused(Problem("request_timeout", "the client left")) from None
    return bytes(body)


async def _take_room(request: Request, bytes_max: int) -> None:
    """Wait for memory for a body; it is given back when the request ends."""
    extension = request.scope.get("extensions", {}).get(BODY_ROOM)
    length = request.headers.get("content-length", "")
    size_bytes = min(int(length), bytes_max) if length.isdigit() else bytes_max
    if extension is not None and (size_bytes if length else "transfer-encoding" in request.headers):
        await extension["take"](request.state.body_owner, size_bytes)


def decode_body(body: bytes, type: type[T]) -> T:
    """Return a body as what it should be; raises Refused, naming the field."""
    try:
        body.decode()
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise _refused_field(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid("the body is not valid JSON", "body") from None


def convert_fields(fields: dict[str, Any], type: type[T]) -> T:
    """Return decoded fields as what they should be; raises Refused, naming the field."""
    try:
        return msgspec.convert(fields, type)
    except msgspec.ValidationError as error:
        raise _refused_field(error) from None
    except RecursionError:
        raise invalid("the body is nested too deeply", "body") from None


def invalid(message: str, param: str) -> Refused:
    """Return the refusal of a field that makes no sense."""
    return Refused(Problem("invalid_request", message, param))


def _refused_field(error: msgspec.ValidationError) -> Refused:
    text = str(error)
    param = text.rpartition("`$.")[2].rstrip("`") if "`$." in text else "body"
    for quoted in ("missing required field `", "contains unknown field `"):
        if quoted in text:
            param = text.partition(quoted)[2].partition("`")[0]
    return invalid(text.split(" - at ")[0], param)
