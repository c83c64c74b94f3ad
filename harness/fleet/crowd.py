"""Clients that keep a fleet busy, and write down what came of every request.

Each client sends one request after another, each on a connection of its own, to a gateway drawn at
random. With more clients than slots somebody always waits, so that order and fairness can be seen.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from forebay.testing.raw_client import RawClient
from harness.fleet.journal import Asked
from harness.fleet.recording_node import MODEL, prompt_for

CHAT = "/v1/chat/completions"
HOST = "127.0.0.1"
PATIENCE_S = 30.0
"""After so long a client says that it was never answered."""
AGAIN_S = 0.1
"""How long a client waits after an answer other than 200 before its next request."""


class Person(Struct, frozen=True):
    """Some clients that are alike: a user, and a class."""

    user: str
    clients: int = 1
    priority: str = "normal"


class Crowd:
    """All clients of a trial; a context within which they ask, and after which nobody does."""

    def __init__(
        self,
        ports: Sequence[int],
        people: Sequence[Person],
        draw: random.Random,
        *,
        service_s: float = 0.05,
        leaving: float = 0.0,
    ) -> None:
        """`service_s` is how long a request runs on average; `leaving` the share that hangs up."""
        self.asked: list[Asked] = []
        self._ports = ports
        self._people = people
        self._draw = draw
        self._service_s = service_s
        self._leaving = leaving
        self._tasks: list[asyncio.Task[None]] = []
        self._enough = False

    @property
    def served(self) -> int:
        """How many requests have been answered with 200."""
        return sum(one.status == 200 for one in self.asked)

    async def __aenter__(self) -> "Crowd":
        self._tasks = [
            asyncio.create_task(self._ask_on(person))
            for person in self._people
            for _ in range(person.clients)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Send nothing more, and wait for what is still to come."""
        self._enough = True
        await asyncio.gather(*self._tasks)

    async def _ask_on(self, person: Person) -> None:
        while not self._enough:
            via = self._draw.randrange(len(self._ports))
            one = await self.ask(person, via)
            if one.status != 200 and not one.left:
                await asyncio.sleep(AGAIN_S)

    async def ask(self, person: Person, via: int, service_s: float | None = None) -> Asked:
        """Send one request through a gateway, and return what came of it."""
        loop = asyncio.get_running_loop()
        drawn_s = self._service_s * self._draw.uniform(0.5, 1.5)
        service_s = drawn_s if service_s is None else service_s
        id = f"r{len(self.asked)}"
        one = Asked(id, person.user, person.priority, via, loop.time())
        self.asked.append(one)
        leaves_s = None
        if self._draw.uniform(0.0, 1.0) < self._leaving:
            leaves_s = self._draw.uniform(0.0, 4.0) * self._service_s
        try:
            async with asyncio.timeout(leaves_s):
                await self._exchange(one, service_s)
        except TimeoutError:
            one.left, one.code = leaves_s is not None, "silence"
        except ConnectionRefusedError:
            one.code = "refused"
        except (OSError, EOFError):
            one.code = "broken"
        except AssertionError:  # so says the client when its patience ends
            one.code = "silence"
        one.ended_s = loop.time()
        return one

    async def _exchange(self, one: Asked, service_s: float) -> None:
        message = {"role": "user", "content": prompt_for(one.id, service_s)}
        body = {"model": MODEL, "user": one.user, "messages": [message]}
        headers = {"X-Forebay-Priority": one.priority}
        client = await RawClient.connect(HOST, self._ports[one.via])
        async with client:
            client.timeout_s = PATIENCE_S
            one.sent_s = asyncio.get_running_loop().time()
            await client.post(CHAT, body, {**headers, "Connection": "close"})
            reply = await client.reply()
            one.status, one.answers = reply.status, 1
            _read(one, reply.json)
            with contextlib.suppress(OSError, AssertionError):
                rest = await client.closed()
                one.answers += rest.count(b"HTTP/1.1 ")


def _read(one: Asked, answer: Any) -> None:
    if one.status == 200:
        one.foreign = answer["id"] != one.id
    else:
        one.code = str(answer["error"]["code"])
