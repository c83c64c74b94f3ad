"""A node that runs whatever it is sent, and writes down when.

It looks like a llama.cpp server with so many slots, and refuses nothing: whoever sends more than
its slots is seen, not stopped.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from forebay.testing.fake_node import Call, FakeNode
from harness.fleet.journal import Run

MODEL = "m"
FOR_EVER_S = 3600.0
Running = list[tuple[Run, Call]]


def prompt_for(id: str, service_s: float) -> str:
    """Return the prompt by which this node knows a request and how long to take over it."""
    return f"{id} {service_s}"


class RecordingNode:
    """One node with a name, slots that it only announces, and its side of the journal.

    Nodes that share `running` see the hang-up on any of them before they begin the next run: a
    gateway that aborts one request and starts another sends both at once on two connections, and
    the loop may show us the second first.
    """

    def __init__(self, name: str, slots: int, running: Running) -> None:
        self.name = name
        self.slots = slots
        self.runs: list[Run] = []
        self._running = running
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
        self._end_hung_up(loop.time())
        run = Run(id, self.name, loop.time())
        self.runs.append(run)
        self._running.append((run, call))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(service_s)):
                await call.gone(FOR_EVER_S)
        self._end_hung_up(loop.time())
        if run.outcome == "running":
            self._running.remove((run, call))
            run.outcome = "served"
            run.ended_s = loop.time()  # before the answer: with its last byte the slot is free
            await call.answer(_answer(id))

    def _end_hung_up(self, now_s: float) -> None:
        for run, call in [*self._running]:
            if call.peer_gone:
                self._running.remove((run, call))
                run.outcome, run.ended_s = "hung_up", now_s


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
