"""Play the demo: the scenes one after the other, while two people go on chatting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from forebay.demo.people import Person, connected
from forebay.demo.scenes import SCENES, Cast
from forebay.demo.stage import SMALL

if TYPE_CHECKING:
    import random

    from forebay.demo.stage import Stage

PAUSE_S: Final = 2.5
"""What a person thinks between two questions, on average."""


async def play(stage: Stage, chance: random.Random, *, once: bool) -> None:
    """Play all scenes, again and again unless `once`; cancel it to end it at any time."""
    async with connected(stage.url) as http:
        people = [Person("person-1", http), Person("person-2", http)]
        cast = Cast(stage, Person("script", http), people, http)
        async with asyncio.TaskGroup() as group:
            chats = [
                group.create_task(one.chat_now_and_then(SMALL, PAUSE_S * stage.pace, chance))
                for one in people
            ]
            while True:
                for scene in SCENES:
                    await scene(cast)
                if once:
                    break
            for chat in chats:
                chat.cancel()
