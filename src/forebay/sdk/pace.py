"""Time and chance as something that is handed in, so that tests wait for neither."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Pace(Protocol):
    """What the client asks about time."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class LoopPace:
    """The event loop's own clock."""

    def monotonic_s(self) -> float:
        """Return the running loop's time, in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
