"""A gateway on a free port with fake time, and nodes that do what they are told.

Time stands still in these tests unless they advance it: sockets are real, limits are not waited
for. `gateway` makes gateways, `node` makes nodes; both are closed at the end, and every test then
checks that no slot is left taken.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from forebay.core.pools import split_pools
from forebay.gateway.gateway import Gateway
from forebay.jobs.idle import tickets
from forebay.settings import Settings
from forebay.testing import Call, FakeClock, FakeNode, RawClient, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .fleet.fleet_rig import FleetRig

CHAT = "/v1/chat/completions"
OK: dict[str, object] = {"choices": []}


class Rig:
    """One test's gateway, clock, nodes and clients."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        """Where the jobs are kept."""
        self.clock = FakeClock(1000.0)
        self.gateway: Gateway
        self.given: dict[str, Any] = {}
        """The settings as given; change them and ask for a reload."""
        self.headers: dict[str, str] = {}
        """What `get` and `queue` send along, such as a key."""

    async def node(self, **options: Any) -> FakeNode:
        """Start a node."""
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, *nodes: FakeNode, **settings: Any) -> Gateway:
        """Start the gateway in front of these nodes, named n1, n2, ..."""
        listed = [{"name": f"n{i + 1}", "url": node.url} for i, node in enumerate(nodes)]
        environ, log = settings.pop("environ", {}), settings.pop("log", None)
        traces = settings.pop("traces", None)
        self.given = {"nodes": listed, **settings}
        self.given["server"] = {"port": 0, **settings.get("server", {})}
        jobs = {"database": f"sqlite:///{self.folder}/jobs.db", **settings.get("jobs", {})}
        self.given["jobs"] = jobs
        made = self.read_settings()
        self.gateway = self.make(made, environ=environ, log=log, traces=traces)
        await self.stack.enter_async_context(self.gateway)
        for backend in self.gateway.parts.nodes:  # of equal nodes the first to come up is chosen
            if backend.told.state == "online":
                told, post = backend.told, self.gateway.parts.coordinator.post
                for change in split_pools(told, backend.settings.model_slots):
                    post(replace(change, state="draining"))
                    post(change)
        return self.gateway

    def make(self, settings: Settings, **options: Any) -> Gateway:
        """Make the gateway, before it starts."""
        return Gateway(settings, clock=self.clock, read_settings=self.read_settings, **options)

    def read_settings(self) -> Settings:
        """Make the settings of what is given now; a reload asks for it."""
        return Settings(**self.given)

    async def client(self, **options: Any) -> RawClient:
        """Connect a client."""
        client = await RawClient.connect("127.0.0.1", self.gateway.port, **options)
        return await self.stack.enter_async_context(client)

    async def ask(self, model: str = "m", path: str = CHAT, **more: Any) -> RawClient:
        """Send a request on a connection of its own; `headers` go into the head."""
        client = await self.client()
        headers = more.pop("headers", {})
        await client.post(path, {"model": model, "messages": [], **more}, headers)
        return client

    async def get(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", **more: Any
    ) -> Reply:
        """Ask for a page on a connection of its own, and return the answer."""
        client = await self.client()
        body = more.get("body", b"")
        await client.request(method, path, body, {**self.headers, **(headers or {})})
        reply = await client.reply()
        client.close()
        return reply

    async def run(self, node: FakeNode, **more: Any) -> tuple[RawClient, Call]:
        """Send a request that runs at once, and return it at both of its ends."""
        client = await self.ask(**more)
        return client, await node.next_call()

    async def line_up(self, count: int, **more: Any) -> list[RawClient]:
        """Send requests that have to wait, one after the other, and return their clients."""
        clients: list[RawClient] = []
        before = (await self.queue())["waiting"]
        for _ in range(count):
            clients.append(await self.ask(**more))
            await self.wait_until("waiting", before + len(clients))
        return clients

    async def measure(self, node: FakeNode, seconds: float, **more: Any) -> None:
        """Have one request served that takes so long, so that there is something to estimate by."""
        client, call = await self.run(node, **more)
        self.clock.advance(seconds)
        await call.answer(OK)
        assert (await client.reply()).status == 200

    async def until_node(self, name: str, state: str) -> None:
        """Let time pass, half a second a turn, until a node is in that state."""
        for _ in range(200):
            listed = (await self.get("/admin/nodes")).json["data"]
            if any(node["name"] == name and node["state"] == state for node in listed):
                return
            self.clock.advance(0.5)
        raise AssertionError(f"{name} is not {state}: {listed}")

    async def queue(self) -> dict[str, Any]:
        """Return `/v1/queue`, which also shows that everything sent before has been taken in."""
        client = await self.client()
        await client.get("/v1/queue", self.headers)
        body: dict[str, Any] = (await client.reply()).json
        client.close()
        return body

    async def wait_until(self, key: str, value: object) -> None:
        """Ask until the queue says so: what happens on sockets is seen when the loop gets to it."""
        for _ in range(2000):
            seen = await self.queue()
            if seen[key] == value:
                return
        raise AssertionError(f"{key} is {seen[key]!r}, not {value!r}")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[FleetRig]:
    """Give the test several gateways, and check afterwards that none waits for another."""
    from .fleet.fleet_rig import FleetRig

    async with AsyncExitStack() as stack:
        made = FleetRig(stack, tmp_path)
        yield made
    for name, rig in made.rigs.items():
        assert not rig.gateway.parts.peers.in_flight, f"{name} still asks another"


@pytest.fixture(autouse=True)
def patient_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job store be slow: a busy machine must not pause what a test waits for."""
    monkeypatch.setattr(tickets, "CLAIM_S", 30.0)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Give the test its rig, and check afterwards that every slot came back."""
    async with AsyncExitStack() as stack:
        rig = Rig(stack, tmp_path)
        yield rig
        if hasattr(rig, "gateway") and not rig.gateway.parts.readiness.draining:
            snapshot = await rig.gateway.parts.queue_observer.snapshot()
            relay = rig.gateway.parts.relay
            tickets = snapshot.running + snapshot.waiting
            tickets += snapshot.running_jobs + snapshot.waiting_jobs
            held = len(relay.exchanges) + len(relay.reservations)
            assert tickets == held, "a ticket without an exchange, or the other way round"
