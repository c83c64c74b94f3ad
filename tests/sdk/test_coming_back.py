"""A client that was refused for lack of room keeps its place when it tries again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.sdk import Client
from forebay.sdk.chat import LOOK_EVERY_S

from .conftest import HighestChance, QuickPace, say, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.sdk import AsyncClient

    from .conftest import Place


class Meanwhile(QuickPace):
    """Time in which something happens, in the test's own loop, while a refused client pauses."""

    def __init__(self, happens: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__()
        self._happens: Callable[[], Coroutine[Any, Any, None]] | None = happens
        self._loop = asyncio.get_running_loop()

    async def sleep(self, seconds: float) -> None:
        if seconds != LOOK_EVERY_S and self._happens is not None:
            happening, self._happens = self._happens(), None
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(happening, self._loop))
        await super().sleep(seconds)


async def waits(client: AsyncClient, user: str) -> asyncio.Task[Any]:
    """Return a chat that has been told that it waits."""
    told = asyncio.Event()
    chat = client.chat("m", "hello", user=user, on_queue=lambda _: told.set())
    asking = asyncio.ensure_future(chat)
    await told.wait()
    return asking


@pytest.mark.parametrize("kind", ["asynchronous", "synchronous"])
async def test_a_chat_that_is_tried_again_goes_before_one_that_came_meanwhile(
    place: Place, kind: str
) -> None:
    node = await place.node()
    await place.start(node, queue={"max_size": 2, "fairness": "fifo"})
    client = await place.client()
    running = asyncio.ensure_future(client.chat("m", "hello", user="first"))
    first = await node.next_call()
    second, third = await waits(client, "second"), await waits(client, "third")
    newcomers = []

    async def others_come_and_go() -> None:
        await say(first, "done")
        newcomer = await waits(client, "newcomer")
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        await until(lambda: len(place.gateway.parts.relay.exchanges) == 2)
        newcomers.append(newcomer)

    pace = Meanwhile(others_come_and_go)
    if kind == "asynchronous":
        other = await place.client(pace=pace)
        asking = asyncio.ensure_future(other.chat("m", "hello", user="late"))
    else:

        def ask() -> Any:
            with Client(place.url, pace=pace, random=HighestChance()) as plain:
                return plain.chat("m", "hello", user="late")

        asking = asyncio.ensure_future(asyncio.to_thread(ask))
    await until(lambda: newcomers and len(place.gateway.parts.relay.exchanges) == 3)
    served = []
    for _ in range(3):
        call = await node.next_call()
        served.append(json.loads(call.body)["user"])
        await say(call, "done")
    assert served == ["second", "late", "newcomer"]
    await asyncio.gather(running, second, asking, *newcomers)
