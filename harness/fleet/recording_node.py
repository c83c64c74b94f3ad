"""A node that runs whatever it is sent, and writes down when.

It looks like a llama.cpp server with so many slots, and refuses nothing: whoever sends more than
its slots is seen, not stopped.
"""

import asyncio
from types import TracebackType
from typing import Any, Self

from forebay.testing.fake_node import Call, FakeNode
from harness.fleet.journal import Run

MODEL = "m"
FOR_EVER_S = 3600.0


def prompt_for(id: str, service_s: float) -> str:
    """Return the prompt by which this node knows a request and how long to take over it."""
    return f"{id} {service_s}"


class RecordingNode:
    """One node with a name, slots that it only announces, and its side of the journal."""

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self.runs: list[Run] = []
        self._fake = FakeNode((MODEL,), slots)
        self._fake.automatic = self._run

    @property
    def url(self) -> str:
        return self._fake.url

    @property
    def port(self) -> int:
        return self._fake.port

    async def __aenter__(self) -> Self:
        await self._fake.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._fake.__aexit__(exc_type, exc, traceback)

    async def _run(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        id, service_s = str(call.json["messages"][-1]["content"]).split()
        run = Run(id, self.name, loop.time())
        self.runs.append(run)
        try:
            async with asyncio.timeout(float(service_s)):
                await call.gone(FOR_EVER_S)
            run.outcome = "hung_up"
        except TimeoutError:
            run.outcome = "served"
        finally:
            run.ended_s = loop.time()  # before the answer: with its last byte the slot is free
        if run.outcome == "served":
            await call.answer(_answer(id))


def _answer(id: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"the answer to {id}"}
    return {
        "id": id,
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
