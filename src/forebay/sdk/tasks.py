"""The tasks of one client: each is known, so that closing can end every one of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Tasks:
    """Starts tasks, and ends those that are left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start one; whoever wants its outcome awaits it."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self, *tasks: asyncio.Task[T]) -> None:
        """Cancel these and return when they have ended; what they raise is their own affair."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end_all(self) -> None:
        """Cancel all but the one that asks, and return when they have ended."""
        current = asyncio.current_task()
        await self.end(*(task for task in self._running if task is not current))
