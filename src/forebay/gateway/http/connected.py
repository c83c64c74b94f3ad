"""Work that is only worth doing while the client waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from forebay.gateway.errors.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from starlette.requests import Request

T = TypeVar("T")


async def while_connected(
    request: Request, work: Coroutine[Any, Any, T], code: str = "request_timeout"
) -> T:
    """Return what the work does; cancel it when the client leaves, which is counted as `code`.

    The body has been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HttpError(code, "the client left")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
