"""Waiting for a database on behalf of a connected client: with a time limit."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from forebay.errors import StoreFailed
from forebay.gateway.errors.http_error import HttpError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

logger = logging.getLogger("forebay.gateway")

ANSWER_S: Final = 10.0
"""How long a database may take. One that hangs (paused, frozen) closes no connection."""


async def in_time(future: Future[T]) -> T:
    """Return what the database answers; raises StoreFailed where that takes too long.

    What has not begun by then never does; what has may still be done.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        raise StoreFailed("the database does not answer") from None


def store_unavailable(what: str, error: BaseException) -> HttpError:
    """Log why a database failed; return the error that callers get."""
    logger.warning("%s: %s", what, error)
    return HttpError("store_unavailable", f"{what} cannot be used now; the log has the details")
