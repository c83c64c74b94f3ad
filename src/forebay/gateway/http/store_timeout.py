"""Waiting for a database on behalf of somebody who is connected: not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from forebay.errors import StoreFailed

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

ANSWER_S: Final = 10.0
"""How long a database may take: one that hangs (paused, frozen) closes no connection, and says
nothing either."""


async def in_time(future: Future[T]) -> T:
    """Return what the database answers; raises StoreFailed where that takes too long.

    What has not begun by then never does; what has may still be done.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        raise StoreFailed("the database does not answer") from None
