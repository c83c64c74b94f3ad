"""The users of the demo: each sends real HTTP requests and remembers how it fared."""

from __future__ import annotations

import asyncio
import contextlib
from statistics import median
from typing import TYPE_CHECKING, Final

import httpx
from msgspec import Struct

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Sequence

QUESTIONS: Final = (
    "What is a forebay?",
    "Write a haiku about waiting.",
    "Explain backpressure to a child.",
    "Why is the sky blue?",
    "Name three rivers.",
)
LIMIT_S: Final = 300.0
"""How long one request may take: longer than any of the demo does."""


class DemoAnswer(Struct, frozen=True):
    """How one request ended."""

    status: int
    waited_s: float
    """In line, as the gateway says; 0 for what was refused."""
    node: str = ""


class DemoUser:
    """One user: fairness is between users, by name."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name = name
        self._http = http
        self.answers: list[DemoAnswer] = []

    async def ask(
        self, model: str, *, tokens: int = 40, priority: str = "normal", words: str = "Hello"
    ) -> DemoAnswer:
        """Send a chat and wait for the whole answer."""
        body = {
            "model": model,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": words}],
            "user": self.name,
        }
        got = await self._http.post(
            "/v1/chat/completions", json=body, headers={"x-forebay-priority": priority}
        )
        waited_s = int(got.headers.get("x-queue-wait-ms", 0)) / 1000.0
        answer = DemoAnswer(got.status_code, waited_s, got.headers.get("x-forebay-node", ""))
        self.answers.append(answer)
        return answer

    async def ask_many(self, count: int, model: str, *, tokens: int = 40) -> list[DemoAnswer]:
        return await asyncio.gather(*(self.ask(model, tokens=tokens) for _ in range(count)))

    async def chat_now_and_then(self, model: str, pause_s: float, chance: random.Random) -> None:
        """Ask, read the answer, think, ask again; until cancelled."""
        while True:
            await asyncio.sleep(pause_s * (0.5 + chance.random()))
            await self.ask(model, words=chance.choice(QUESTIONS))

    def take_answers(self) -> list[DemoAnswer]:
        taken, self.answers = self.answers, []
        return taken


def median_wait_s(answers: Sequence[DemoAnswer]) -> float | None:
    """Return how long the one in the middle waited; None where nobody was answered."""
    waits = [answer.waited_s for answer in answers if answer.status == 200]
    return median(waits) if waits else None


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client that any number of requests can be under way on."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with httpx.AsyncClient(
        base_url=url, timeout=LIMIT_S, limits=limits, trust_env=False
    ) as http:
        yield http
