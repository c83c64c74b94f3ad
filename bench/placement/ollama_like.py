"""A simulated node with a line of its own: what it cannot run waits inside, as with Ollama.

First come, first served: who wants a model that is not in memory waits until what runs has ended,
and everybody behind waits too.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from forebay.errors import Rejected
from forebay.nodes.sim.dialects import Chat
from forebay.nodes.sim.sim_node import (
    Inference,
    SimNode,
    Speaker,
    json_body,
    parse,
    sim_app,
    while_connected,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from forebay.nodes.sim.engine import SimEngine, SimOptions

LOOK_S = 0.002


class Patient(Inference):
    """The chat route, which keeps a request until there is room for it."""

    def __init__(self, engine: SimEngine) -> None:
        super().__init__(engine, "messages", Speaker(engine, Chat, count(1)).write)
        self._line = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = parse(await json_body(Request(scope, receive)), self._required)

        async def serve() -> None:
            with ExitStack() as held:
                async with self._line:
                    while not self._takes(asked.model, held):  # noqa: ASYNC110 - it sets no event
                        await asyncio.sleep(LOOK_S)
                await self._write(asked, send)

        await while_connected(receive, serve())

    def _takes(self, model: str, held: ExitStack) -> bool:
        try:
            held.enter_context(self._engine.slot(model))
        except Rejected:
            return False
        return True


class OllamaLike(SimNode):
    """A simulated node that refuses nothing."""

    def __init__(self, options: SimOptions) -> None:
        super().__init__(options)
        chat = Route("/v1/chat/completions", Patient(self.engine), methods=["POST"])
        self._app = Starlette(routes=[chat, Mount("/", sim_app(self.engine))])
