"""Bodies of requests that are not hot: read within bounds, decoded, and refused by the field."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from forebay.gateway.asking import Refused
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")


async def read_body(request: Request, bytes_max: int, limit_s: float) -> bytes:
    """Read a small body, bounded in size and time; raises Refused."""
    body = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    raise Refused(
                        Problem("body_too_large", f"the body is larger than {bytes_max} bytes")
                    )
    except TimeoutError:
        raise Refused(Problem("request_timeout", "the body took too long")) from None
    except ClientDisconnect:
        raise Refused(Problem("request_timeout", "the client left")) from None
    return bytes(body)


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
