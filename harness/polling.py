"""The pause between two looks at what another program, or a thread, is doing."""

import asyncio

LOOK_S = 0.02


async def pause() -> None:
    """Wait a moment before the next look: without, looking takes as much as what is looked at."""
    await asyncio.sleep(LOOK_S)
