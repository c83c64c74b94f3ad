"""Several gateways of one test that know each other, and clients who ask the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.testing import FakeDirectory, FakeNode

from ..conftest import Rig

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from forebay.gateway.gateway import Gateway
    from forebay.sessions.prompt_queue import Branch
    from forebay.sessions.session import Session
    from forebay.testing import FakeFleet

A, B, C = "aaaaaaaa", "bbbbbbbb", "cccccccc"


class FleetRig:
    """Gateways by name, each with clients of its own (`rig.get` and so on ask that one)."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.directory = FakeDirectory()
        self.rigs: dict[str, Rig] = {}
        self.fleets: dict[str, FakeFleet] = {}

    async def node(self, **options: Any) -> FakeNode:
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, name: str, *nodes: FakeNode, **settings: Any) -> Rig:
        """Start a gateway; again under the same name it is the same one after a restart."""
        rig = OneOfSeveral(self.stack, self.folder / name, self.directory, name)
        rig.folder.mkdir(exist_ok=True)
        await rig.start(*nodes, **settings)
        self.directory.addresses[name] = f"http://127.0.0.1:{rig.gateway.port}"
        self.rigs[name], self.fleets[name] = rig, rig.fleet
        return rig

    async def stop(self, name: str) -> None:
        """End a gateway; the others still think that it is there."""
        await self.rigs[name].gateway.stop(0.0)


class OneOfSeveral(Rig):
    """A rig whose gateway joins the others before it starts."""

    fleet: FakeFleet

    def __init__(
        self, stack: AsyncExitStack, folder: Path, directory: FakeDirectory, name: str
    ) -> None:
        super().__init__(stack, folder)
        self._directory = directory
        self._name = name

    def make(self, *args: Any, **more: Any) -> Gateway:
        gateway = super().make(*args, **more)
        exchanges = gateway.parts.relay.exchanges
        self.fleet = self._directory.fleet(self._name, lambda ticket_id: ticket_id in exchanges)
        gateway.parts.membership.join(self.fleet)
        return gateway


KEYS = [
    {"name": "one", "key_env": "ONE"},
    {"name": "two", "key_env": "TWO"},
    {"name": "boss", "key_env": "BOSS", "admin": True},
]
SECRETS = {"ONE": "sk-one", "TWO": "sk-two", "BOSS": "sk-boss"}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def two(fleet: FleetRig, **settings: Any) -> tuple[Rig, Rig, FakeNode]:
    """Start two gateways, the second with the node."""
    node = await fleet.node(slots=4)
    wrong = await fleet.start(A, node, **settings)
    owner = await fleet.start(B, node, **settings)
    return wrong, owner, node


def waiting(session: Session) -> list[Branch]:
    return [branch for branch in session.queue.branches() if not branch.copied.done()]


async def until(rig: Rig, is_so: Any) -> None:
    for _ in range(2000):
        if is_so():
            return
        await rig.queue()
    raise AssertionError("it is not so")


async def until_readers(rig: Rig, session: str, count: int) -> None:
    live = (await rig.gateway.parts.sessions.ready()).find(session, None)
    await until(rig, lambda: live.log.readers == count)
