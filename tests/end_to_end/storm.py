"""Three gateways under load, and what befalls them: a schedule that a seed decides.

What is due comes after so many requests at the nodes, never after so much time. The nodes take a
moment for each request, as nodes do, so that there is always something running when a blow falls.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import openai

from forebay.testing import FakeNode, RawClient
from harness.polling import pause

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from forebay.testing.fake_node import Call

    from .conftest import Command, Shell
    from .ledger import Ledger

GATEWAYS = 3
NODES = 2
SLOTS = 2
WAITING_MAX = 60
"""Jobs that the callers leave waiting; beyond it they wait themselves."""
SERVICE_S = (0.01, 0.06)
RETRY_S, ANSWER_S = 0.05, 5.0
LIMIT_S = 120.0
"""Only turns a hang into a failure; gateways that start on a busy machine take a while."""
ATTEMPTS = 3
MODULE = """
import os
from forebay.jobs import get_runner

@get_runner().task("fragile", vram_gb=0)
def fragile(task):
    if task.params["poison"]:
        os._exit(9)
    return "well"
"""
UNREACHABLE = (OSError, AssertionError, EOFError)
"""What a caller sees of a gateway that is killed or frozen."""


class Nodes:
    """Real HTTP servers that answer what they are asked, and count it."""

    def __init__(self, chance: Random) -> None:
        self.asked: Counter[str] = Counter()
        self.tokens: dict[str, set[str]] = {}
        self.news = asyncio.Event()
        self._chance = chance

    async def answer(self, call: Call) -> None:
        content = call.json["messages"][0]["content"]
        self.asked[content] += 1
        token = f"{content}/{self.asked[content]}"
        self.tokens.setdefault(content, set()).add(token)
        self.news.set()
        await asyncio.sleep(self._chance.uniform(*SERVICE_S))  # the work itself
        with suppress(ConnectionResetError):  # whoever asked is dead
            await call.answer({"token": token})

    async def asked_more(self, count: int) -> None:
        """Wait for so many more requests."""
        until = self.asked.total() + count
        async with asyncio.timeout(LIMIT_S):
            while self.asked.total() < until:
                self.news.clear()
                await self.news.wait()


class Storm:
    """The gateways, their callers, and the blows."""

    def __init__(self, shell: Shell, ledger: Ledger, folder: Path, chance: Random) -> None:
        self._shell = shell
        self._ledger = ledger
        self._folder = folder
        self._chance = chance
        self.nodes = Nodes(chance)
        self._words: tuple[str, ...] = ()
        self._gateways: list[Command] = []
        self._ports: list[int] = []
        self._up: set[int] = set()
        self._started = asyncio.Event()
        self._frozen: set[int] = set()
        self._watching: list[asyncio.Task[None]] = []
        self.accepted: dict[int, str] = {}
        """By number, what was asked."""
        self.cancelled: set[int] = set()
        self.blows: Counter[str] = Counter()
        self.over = False

    # -- the gateways

    async def begin(self, url: str, nodes: list[FakeNode]) -> None:
        """Start everything."""
        (self._folder / "fleet_app.py").write_text(MODULE)
        self._words = (
            *(word for node in nodes for word in ("--node", node.url)),
            "--set", f"jobs.database={url}", "--set", "jobs.lease_seconds=1",
            "--set", "jobs.on_interrupt=retry", "--set", f"jobs.attempts={ATTEMPTS}",
            "--set", 'jobs.modules=["fleet_app"]',
        )  # fmt: skip
        for node in nodes:
            node.automatic = self.nodes.answer
        started = await asyncio.gather(*(self._start() for _ in range(GATEWAYS)))
        self._gateways, self._ports = [one[0] for one in started], [one[1] for one in started]
        self._up = set(range(GATEWAYS))
        self._watching = [asyncio.create_task(self._restart(i)) for i in range(GATEWAYS)]

    async def _start(self) -> tuple[Command, int]:
        return await self._shell.serve(*self._words, cwd=self._folder)

    async def _restart(self, place: int) -> None:
        """Start a gateway anew whenever it has ended, as a service manager does."""
        while True:
            await self._gateways[place].ended()
            self._up.discard(place)
            self.blows["deaths"] += 1
            self._gateways[place], self._ports[place] = await self._start()
            self._up.add(place)
            self._started.set()

    async def end(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    def port(self) -> int:
        """Return where one of the gateways is, as a load balancer would."""
        live = [i for i in range(GATEWAYS) if i not in self._frozen]
        return self._ports[self._chance.choice(live)]

    # -- the callers

    async def call(self, name: str) -> None:
        """Submit one job after another while it lasts; now and then cancel one elsewhere."""
        for number in range(10_000):
            if self.over:
                return
            while len(self.accepted) - len(self.nodes.asked) > WAITING_MAX and not self.over:
                await self.nodes.asked_more(1)
            await self._submit(f"{name}-{number}")

    async def _submit(self, content: str) -> None:
        params = {"model": "m", "messages": [{"role": "user", "content": content}]}
        body: dict[str, Any] = {"type": "chat", "idempotency_key": content, "params": params}
        if self._chance.random() < 0.1:
            body = {"type": "fragile", "idempotency_key": content, "params": {"poison": False}}
            self.nodes.asked[content] += 1  # which no node sees
        job_id = await self.submit(body, content)
        if self._chance.random() < 0.05:
            reply = await self._try("DELETE", f"/jobs/{job_id}")
            if not isinstance(reply, str) and reply.status == 200:
                self.cancelled.add(job_id)

    async def submit(self, body: dict[str, Any], content: str) -> int:
        """Submit a job until some gateway has taken it in."""
        refused: Counter[str] = Counter()
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    reply = await self._try("POST", "/jobs", body)
                    if not isinstance(reply, str) and reply.status == 202:
                        self.accepted[reply.json["id"]] = content
                        return int(reply.json["id"])
                    refused[reply if isinstance(reply, str) else str(reply.status)] += 1
                    await asyncio.sleep(RETRY_S)  # as callers do
        except TimeoutError:
            raise AssertionError(f"nobody took in a job: {dict(refused)}") from None

    async def _try(self, method: str, path: str, body: object = b"") -> Any:
        """Return the reply of some gateway, or why there is none."""
        try:
            async with asyncio.timeout(ANSWER_S):
                async with await RawClient.connect("127.0.0.1", self.port()) as one:
                    await one.request(method, path, body)
                    return await one.reply()
        except (*UNREACHABLE, TimeoutError) as error:
            return type(error).__name__

    async def make_batch(self, data: bytes) -> str:
        """Upload a file through one gateway, and make a batch of it through another."""
        async with self._client() as client:
            file = await client.files.create(file=data, purpose="batch")
        async with self._client() as client:
            batch = await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        return str(batch.id)

    async def batch_output(self, batch_id: str) -> list[Any]:
        """Return what a batch has answered, and what it gave up, once it is completed."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    async with self._client() as client:
                        batch = await client.batches.retrieve(batch_id)
                        assert batch.status not in ("failed", "expired", "cancelled"), batch
                        if batch.status == "completed":
                            files = (batch.output_file_id, batch.error_file_id)
                            found = [await client.files.content(one) for one in files if one]
                            text = "".join(one.text for one in found)
                            return [json.loads(line) for line in text.splitlines()]
                except openai.APIError:
                    pass
                await pause()

    def _client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{self.port()}/v1", api_key="x")

    # -- the blows

    async def blow(self, kind: str) -> None:
        """Let one fall, once there is enough going on."""
        await self.nodes.asked_more(self._chance.randint(5, 25))
        async with asyncio.timeout(LIMIT_S):
            while not self._up:
                self._started.clear()
                await self._started.wait()
        await getattr(self, f"_{kind}")(self._chance.choice(sorted(self._up)))
        self.blows[kind] += 1

    async def _kill(self, place: int) -> None:
        self._gateways[place].signal(signal.SIGKILL)

    async def _freeze(self, place: int) -> None:
        """Stop a gateway until all that it held is somebody else's, or ended."""
        gateway = self._gateways[place]
        held = await asyncio.to_thread(self._held)
        self._frozen.add(place)
        gateway.signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(LIMIT_S):
                while held & await asyncio.to_thread(self._held):
                    await pause()
        finally:
            gateway.signal(signal.SIGCONT)
            self._frozen.discard(place)

    def _held(self) -> set[tuple[int, int]]:
        found = self._ledger.ask("SELECT id, fence FROM jobs WHERE status = 'running'")
        return {(row[0], row[1]) for row in found}

    async def _crash_database(self, _: int) -> None:
        """Kill one of PostgreSQL's own processes: it ends all others and recovers."""
        while True:
            pids = await asyncio.to_thread(
                self._ledger.ask,
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid() AND datname = current_database()",
            )
            with suppress(ProcessLookupError):  # it has ended since
                return os.kill(self._chance.choice(pids)[0], signal.SIGKILL)

    # -- what is left

    async def settled(self) -> None:
        """Wait until every job has ended."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    if not await asyncio.to_thread(self._ledger.unended):
                        return
                except Exception:  # the database is on its way up
                    pass
                await pause()
