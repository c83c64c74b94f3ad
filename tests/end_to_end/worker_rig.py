"""A gateway of several processes: which of them has a connection, and which leads."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.polling import pause

from .conftest import CHAT, LIMIT_S, PROMPT

if TYPE_CHECKING:
    from forebay.testing import RawClient, Reply

    from .conftest import Command, Shell

TRIES_MAX = 500
"""Connections to make until one is a given worker's: each is by a chance of one half."""


class Workers:
    """A running gateway with workers, seen from outside."""

    def __init__(self, shell: Shell, gateway: Command, port: int) -> None:
        self._shell = shell
        self.gateway = gateway
        self.port = port

    @classmethod
    async def serve(cls, shell: Shell, *words: str, cwd: Path | None = None) -> Workers:
        """Start two workers, and wait until both have said what they count."""
        gateway, port = await shell.serve("--set", "server.workers=2", *words, cwd=cwd)
        workers = cls(shell, gateway, port)
        await workers.all_there()
        return workers

    async def all_there(self) -> None:
        """Wait until there are two, each with connections of its own."""
        async with asyncio.timeout(LIMIT_S):
            while (await self.metrics()).get("forebay_workers") != 2:
                await pause()
        for number in range(2):
            (await self.connect(number)).close()

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the lines of the log with that message.

        Another process may have written the beginning of a line of its own before it.
        """
        lines = [line for line in self.gateway.text.splitlines() if f'"{message}"' in line]
        return [json.loads(line[line.index("{") :]) for line in lines]

    def found_slots(self) -> list[int]:
        """Return the numbers of slots that were found, as the log says, in order."""
        said = re.findall(r'"message":"node has (\d+) slots now"', self.gateway.text)
        return [int(number) for number in said]

    def pid(self, number: int) -> int:
        """Return the process that is a worker now."""
        return int(self.logged(f"worker {number} started")[-1]["pid"])

    @property
    def leader(self) -> int:
        """The worker that leads."""
        return int(self.logged("worker became leader")[-1]["worker"])

    @property
    def follower(self) -> int:
        return 1 - self.leader

    def kill(self, number: int) -> None:
        os.kill(self.pid(number), signal.SIGKILL)

    async def connect(self, number: int) -> RawClient:
        """Return a connection that a given worker has accepted."""
        async with asyncio.timeout(LIMIT_S):
            for _ in range(TRIES_MAX):
                client = await self._shell.connect(self.port)
                await client.get("/health")  # it is accepted then
                await client.reply()
                if self._has(self.pid(number), client):
                    return client
                client.close()
        raise AssertionError(f"worker {number} accepts no connections")

    def _has(self, pid: int, client: RawClient) -> bool:
        own_port = client._transport.get_extra_info("sockname")[1]
        ends = f":{self.port:04X}", f":{own_port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if (fields[1][8:], fields[2][8:]) == ends:
                try:
                    links = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
                except FileNotFoundError:  # it has died, or closed one meanwhile
                    return False
                return f"socket:[{fields[9]}]" in links
        return False

    async def ask(self, number: int, **body: Any) -> RawClient:
        """Send a chat request to a given worker."""
        client = await self.connect(number)
        await client.post(CHAT, {"messages": [{"role": "user", "content": PROMPT}], **body})
        return client

    async def get(self, number: int, path: str) -> Reply:
        """Ask a given worker."""
        client = await self.connect(number)
        await client.get(path)
        return await client.reply()

    async def post(self, number: int, path: str, body: Any) -> Reply:
        client = await self.connect(number)
        await client.post(path, body)
        return await client.reply()

    async def metrics(self) -> dict[str, float]:
        """Return the metrics, from whichever worker."""
        client = await self._shell.connect(self.port)
        await client.get("/metrics")
        reply = await client.reply()
        assert reply.status == 200, reply.body
        return samples(reply.body)

    async def until_waiting(self, count: int) -> None:
        await self._shell.until_waiting(self.port, count)


def samples(text: bytes) -> dict[str, float]:
    """Return the samples of metrics by their name and labels."""
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
