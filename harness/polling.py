"""The pause between two looks at what another program, or a thread, is doing."""

import asyncio

LOOK_S = 0.02


async def pause(look_s: float = LOOK_S) -> None:
    """Wait a moment before the next look: without, looking takes as much as what is looked at."""
    await asyncio.sleep(look_s)
