"""Gateways, nodes, guards, the store, the database and HAProxy on this machine, as programs."""

import asyncio
import secrets
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from forebay.testing.raw_client import Reply
from harness.fleet.asking import HOST, answers
from harness.fleet.balancer import Balancer
from harness.fleet.link import Link
from harness.fleet.plan import MODELS, TOKEN_VARIABLE, FleetPlan, NodePlan, settings_text
from harness.fleet.ports import free_port
from harness.fleet.program import START_S, Program
from harness.fleet.store import Store
from harness.postgres_server import PostgresServer
from harness.preloaded import COMMAND


class Gateway(Program):
    """One gateway: the same port and the same name, however often it is started."""

    def __init__(
        self,
        number: int,
        folder: Path,
        port: int,
        variables: dict[str, str],
        command: Sequence[str] = (),
    ) -> None:
        self.number = number
        self.port = port
        self.deaths: list[tuple[float, float]] = []
        """When it was killed, and when it was gone, by the loop's clock."""
        words = [*(command or (COMMAND,)), "serve", "--config", str(folder.parent / "forebay.toml")]
        words += ["--port", str(port)]
        data = {"XDG_STATE_HOME": str(folder)}  # not the database of whoever runs this
        super().__init__(f"gateway-{number}", words, folder, data | variables)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def listening(self) -> None:
        """Wait until it has its port, and not somebody else; raises ProgramFailed if it ends."""
        await self.says("Forebay is listening on ")

    async def kill(self) -> None:
        """End it in the middle of whatever it does, and write down when."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await super().kill()
        self.deaths.append((began_s, loop.time()))


class Fleet:
    """A fleet as planned; a context, at whose end every program has ended, whatever happened."""

    def __init__(self, plan: FleetPlan, folder: Path) -> None:
        """`folder` takes the logs, the settings and the files of all of them."""
        self.plan = plan
        self.folder = folder
        self.store: Store | None = None
        self.database: PostgresServer | None = None
        self.balancer: Balancer | None = None
        self.gateways: list[Gateway] = []
        self.nodes: list[Program] = []
        self.guards: list[Program] = []
        self.links: list[Link] = []
        """One for each gateway, if the plan has any."""
        self._stack = AsyncExitStack()
        self._token = secrets.token_hex(16)

    @property
    def ports(self) -> list[int]:
        """Where the gateways listen."""
        return [gateway.port for gateway in self.gateways]

    @property
    def url(self) -> str:
        """Where clients go: HAProxy, else the first gateway."""
        return f"http://{HOST}:{self.balancer.port if self.balancer else self.ports[0]}"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.plan.coordinated:
            self.store = Store(self.folder)
            self._run(self.store)
            await self.store.ready()
        if self.plan.postgres:
            self.database = PostgresServer()
            self._stack.callback(self.database.stop)
            await asyncio.to_thread(self.database.start)
        await self._start_nodes()
        database = self.database.url if self.database else ""
        (self.folder / "forebay.toml").write_text(settings_text(self.plan, database))
        await self._start_gateways()
        if self.plan.guards:
            await self._start_guards()
        await self.ready()
        if self.plan.haproxy:
            port = self.plan.first_port - 1 if self.plan.first_port else free_port()
            self.balancer = Balancer(self.folder, self.plan.haproxy, port, self.ports)
            self._run(self.balancer)
            await self.balancer.sees_all()

    def _run(self, *programs: Program) -> None:
        """Start these; at the end they are stopped together, before what was started earlier."""
        self._stack.push_async_callback(stop_all, programs)
        for program in programs:
            program.start()

    async def _start_nodes(self) -> None:
        nodes = []
        for node in self.plan.nodes:
            if not node.url:
                port = free_port()
                self.nodes.append(self._sim_node(node, port))
                nodes.append(replace(node, url=f"http://{HOST}:{port}"))
            else:
                nodes.append(node)
        self.plan = replace(self.plan, nodes=tuple(nodes))
        self._run(*self.nodes)
        for program in self.nodes:
            await program.says("simulated node on ")

    def _sim_node(self, node: NodePlan, port: int) -> Program:
        words = [COMMAND, "sim-node", "--port", str(port), "--slots", str(node.slots)]
        words += [word for model in MODELS for word in ("--model", model)]
        return Program(node.name, [*words, "--tokens-per-second", "40"], self.folder)

    async def _start_gateways(self) -> None:
        for number in range(1, self.plan.gateways + 1):
            variables = {TOKEN_VARIABLE: self._token} if self.plan.guards else {}
            variables |= self.plan.variables.get(number, {})
            if self.store is not None:
                variables["FOREBAY_COORDINATION__URL"] = await self._store_url(self.store)
            port = self.plan.first_port + number - 1 if self.plan.first_port else free_port()
            folder = self.folder / f"gateway-{number}"
            self.gateways.append(Gateway(number, folder, port, variables, self.plan.command))
        self._run(*self.gateways)

    async def _store_url(self, store: Store) -> str:
        if not self.plan.links:
            return store.url
        link = await Link.to(store.port)
        self._stack.push_async_callback(link.stop)
        self.links.append(link)
        return f"redis://{HOST}:{link.port}/0"

    async def _start_guards(self) -> None:
        for node in self.plan.nodes:
            words = [COMMAND, "node", "--backend", node.url, "--name", node.name]
            words += ["--slots", str(node.slots), "--port", "0", "--token-env", TOKEN_VARIABLE]
            words += [word for one in self.gateways for word in ("--gateway", one.url)]
            variables = {TOKEN_VARIABLE: self._token}
            self.guards.append(Program(f"guard-{node.name}", words, self.folder, variables))
        self._run(*self.guards)
        for guard in self.guards:
            await guard.says("Forebay guards ")

    async def ready(self) -> None:
        """Wait until every gateway has its nodes and takes requests."""
        for gateway in self.gateways:
            await gateway.listening()
            await answers(gateway.port, "/ready", gateway)
            await self._has_nodes(gateway)

    async def _has_nodes(self, gateway: Gateway) -> None:
        def complete(reply: Reply) -> bool:
            online = [node for node in reply.json["data"] if node["state"] == "online"]
            return len(online) == len(self.plan.nodes)

        await answers(gateway.port, "/admin/nodes", gateway, complete)

    async def restart(self, gateway: Gateway) -> None:
        """Start a gateway that has ended, and wait until it takes requests."""
        gateway.start()
        await gateway.listening()
        await answers(gateway.port, "/ready", gateway)

    async def roll(self) -> None:
        """Restart every gateway, one after the other, as an operator would who is in no hurry."""
        for gateway in self.gateways:
            gateway.signal(signal.SIGTERM)
            await gateway.ended(START_S)
            await self.restart(gateway)
            if self.balancer is not None:
                await self.balancer.sees_all()


async def stop_all(programs: Sequence[Program]) -> None:
    """Stop programs at the same time; returns when all have ended."""
    async with asyncio.TaskGroup() as group:
        for program in programs:
            group.create_task(program.stop())
