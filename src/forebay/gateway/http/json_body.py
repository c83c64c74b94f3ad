"""Request bodies of the Starlette routes: read within limits, decoded, and validated by field."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.hot.asgi_bridge import BODY_ROOM
from forebay.relay.fields import INLINE_BYTES, text_bytes
from forebay.relay.json_text import outside_texts
from forebay.relay.members import InvalidBody, read_members
from forebay.wire.refusals import BUSY, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from starlette.requests import Request

T = TypeVar("T")

LATE: Final = Refusal("request_timeout", "the body took too long")
VALUES_MAX: Final = 4096
"""How many values a large body may hold that is decoded whole: about 2 ms of work."""


class RequestReader:
    """Reads request bodies."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        """How long a body may take; the limit on uploads is per gap."""

    async def read(self, request: Request, bytes_max: int) -> bytes:
        """Read a body once there is memory for it; raises HttpError."""
        length = request.headers.get("content-length", "")
        size_bytes = min(int(length), bytes_max) if length.isdigit() else bytes_max
        if size_bytes if length else "transfer-encoding" in request.headers:
            await self.reserve(request, size_bytes)
        body = bytearray()
        async with self._in_time():
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    words = f"the body is larger than {bytes_max} bytes"
                    raise HttpError("body_too_large", words)
        return bytes(body)

    async def whole(self, request: Request) -> bytes:
        """Return a body, which the request keeps; raises HttpError where it takes too long."""
        async with self._in_time():
            return await request.body()

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """Yield a body as it comes; raises HttpError where the next piece takes too long."""
        stream = request.stream()
        while True:
            async with self._in_time():
                piece = await anext(stream, None)
            if piece is None:
                return
            if piece:
                yield piece

    async def reserve(self, request: Request, size_bytes: int) -> None:
        """Wait for memory for a body; it is released when the request ends. Raises HttpError."""
        async with self._in_time(BUSY):
            await take_room(request, size_bytes)

    @asynccontextmanager
    async def _in_time(self, late: Refusal = LATE) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.limit_s):
                yield
        except TimeoutError:
            raise HttpError(late.code, late.message) from None
        except ClientDisconnect:
            raise HttpError("request_timeout", "the client left") from None

    async def decode(
        self, request: Request, bytes_max: int, type: type[T], as_it_is: str = ""
    ) -> T:
        """Read a body and decode it, as `decode_body` does."""
        return await decode_body(await self.read(request, bytes_max), type, as_it_is)


async def take_room(request: Request, size_bytes: int) -> None:
    """Wait for so much memory, in place of what the request has; released when it ends."""
    extension = request.scope.get("extensions", {}).get(BODY_ROOM)
    if extension is not None:
        await extension["take"](request.state.body_owner, size_bytes)


async def in_turns(slices: Generator[object, None, T]) -> T:
    """Run slices of work, one per turn of the event loop; return their result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


async def decode_body(body: bytes, type: type[T], as_it_is: str = "") -> T:
    """Decode and validate a body; raises HttpError, naming the field.

    A member named `as_it_is` may be large and is kept undecoded. Numbers are parsed by Python:
    msgspec takes 11 to 17 µs for some (`5e-324`), Python half of one.
    """
    try:
        kept = None
        if len(body) <= INLINE_BYTES:
            body.decode()
        elif not as_it_is:
            await in_turns(check_text(body))
        else:
            await in_turns(text_bytes(body))
            members = await in_turns(read_members(body))
            kept = members.pop(as_it_is, None)
            if sum(len(bytes(raw)) for raw in members.values()) > INLINE_BYTES:
                raise invalid(f"only `{as_it_is}` may be large", "body")
            body = msgspec.json.encode(members)
        decoded = msgspec.json.Decoder(type, float_hook=float).decode(body)
        await in_turns(read_members(body))  # for names that come twice
        if kept is not None:
            setattr(decoded, as_it_is, kept)
        return decoded
    except msgspec.ValidationError as error:
        raise _refused_field(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _not_json(body) from None
    except InvalidBody as error:
        raise invalid(str(error), error.param) from None


_NO_NUMBER: Final = re.compile(rb'"(\w{1,64})"\s*:\s*-?(?:NaN|Infinity)\b', re.ASCII)


def _not_json(body: bytes) -> HttpError:
    if named := _NO_NUMBER.search(body[:INLINE_BYTES]):  # what Python writes, and JSON has not
        name = named[1].decode()
        return invalid(f"`{name}` is not a number that JSON knows", name)
    return invalid("the body is not valid JSON", "body")


def check_text(body: bytes) -> Generator[int, None, None]:
    """Raise InvalidBody, in slices, for what is not UTF-8 or would be slow to decode."""
    yield from text_bytes(body)
    values = 0
    for outside in outside_texts(body):
        values += len(outside) - len(outside.translate(None, b",[{"))
        if values > VALUES_MAX:
            raise InvalidBody(f"the body holds more than {VALUES_MAX} values")
        yield len(outside)


def convert_fields(fields: dict[str, Any], type: type[T]) -> T:
    """Validate decoded fields; raises HttpError, naming the field."""
    try:
        return msgspec.convert(fields, type)
    except msgspec.ValidationError as error:
        raise _refused_field(error) from None
    except RecursionError:
        raise invalid("the body is nested too deeply", "body") from None


def _refused_field(error: msgspec.ValidationError) -> HttpError:
    text = str(error)
    param = text.rpartition("`$.")[2].rstrip("`") if "`$." in text else "body"
    param = param.partition("[...]")[0]  # any value of a mapping
    for quoted in ("missing required field `", "contains unknown field `"):
        if quoted in text:
            param = text.partition(quoted)[2].partition("`")[0]
    return invalid(text.split(" - at ")[0], param)
