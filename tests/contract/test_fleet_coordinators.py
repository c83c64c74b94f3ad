"""The coordinators' suite once more, with one, two and three replicas: on a real Valkey, and as
the workers of one parent.

Every replica sees every node; arrivals come to the replicas in turn, and what follows of a ticket
happens where it is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from forebay.coordination import membership
from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.coordination.store.valkey import ValkeyStore
from forebay.core import (
    Action,
    Arrived,
    Audited,
    Event,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Options,
    ShutDown,
)
from forebay.testing import FakeClock
from forebay.testing.contracts import CoordinatorContract
from harness.worker_group import GroupRig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

LEASE_S = 1000.0
"""By the clock of the tests, which passes hours in a moment; the store's own goes on as ever."""


class FleetHarness:
    def __init__(self, replicas: int) -> None:
        self.actions: list[Action] = []
        self.on_action: Callable[[Action], None] = lambda action: None
        self.clock = FakeClock()
        self.loop = uvloop.new_event_loop()
        self.replicas: list[Replica] = []
        self.at: dict[str, Replica] = {}
        self.turn = 0
        self.inside = False  # a callback
        self.stopped = False
        self.run(self._start(replicas))

    async def _replica(self, number: int) -> Replica:
        raise NotImplementedError

    def run(self, work: Coroutine[None, None, None]) -> None:
        self.loop.run_until_complete(work)

    async def _start(self, replicas: int) -> None:
        for number in range(replicas):
            replica = await self._replica(number)
            self.replicas.append(replica)
            await self._pass_time([asyncio.ensure_future(replica.start())])
        await self._settle()

    def _perform(self, action: Action) -> None:
        self.actions.append(action)
        self.inside = True
        self.on_action(action)
        self.inside = False

    def post(self, event: Event) -> None:
        for replica in self._where(event):
            replica.post(event)
            self.settle()

    def _where(self, event: Event) -> list[Replica]:
        if isinstance(event, NodeChanged | NodeRemoved | NodeRested | ShutDown | Audited):
            return self.replicas
        if isinstance(event, Arrived):
            self.turn += 1
            self.at[event.id] = self.replicas[self.turn % len(self.replicas)]
        return [self.at.get(getattr(event, "id", ""), self.replicas[-1])]

    def settle(self) -> None:
        if not self.inside and not self.stopped:
            self.run(self._settle())

    async def _settle(self) -> None:
        """Pass a question through everyone, in order with everything else, a few times."""
        for _ in range(3):
            asked = [asyncio.ensure_future(r.fleet.owner_of("nobody")) for r in self.replicas]
            await self._pass_time(asked)

    async def _pass_time(self, until: Sequence[asyncio.Future[Any]]) -> None:
        """Wait: on a busy machine a call may be late, and is tried again after a moment."""
        while (await asyncio.wait(until, timeout=0.2))[1]:
            self.clock.advance(0.1)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def stop(self) -> None:
        self.stopped = True
        for replica in self.replicas:
            replica.stop()

    async def _close(self) -> None:
        for replica in self.replicas:
            await replica.close()

    def close(self) -> None:
        self.run(self._close())
        self.loop.close()


class ValkeyHarness(FleetHarness):
    def __init__(self, url: str, replicas: int) -> None:
        self.url = url
        super().__init__(replicas)

    async def _replica(self, number: int) -> Replica:
        about = About(f"{number:08x}-1", f"http://127.0.0.1:{7800 + number}", "1", "same")
        store = ValkeyStore(self.url, LEASE_S)
        return Replica(about, Options(), self._perform, self.clock, store, lease_s=LEASE_S)


class WorkersHarness(FleetHarness):
    def __init__(self, directory: Path, replicas: int) -> None:
        self.rig = GroupRig(directory)
        super().__init__(replicas)

    async def _replica(self, number: int) -> Replica:
        worker = await self.rig.start(number, Options(), self._perform, self.clock, lease_s=LEASE_S)
        return worker.replica

    async def _close(self) -> None:
        await super()._close()
        await self.rig.close()


class TestFleet(CoordinatorContract):
    @pytest.fixture(params=[1, 2, 3])
    def harness(
        self, request: pytest.FixtureRequest, valkey_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[FleetHarness]:
        monkeypatch.setattr(membership, "OWNER_S", 60.0)  # on a busy machine
        harness = ValkeyHarness(valkey_url, request.param)
        yield harness
        harness.close()


class TestWorkers(CoordinatorContract):
    @pytest.fixture(params=[1, 2, 3])
    def harness(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[FleetHarness]:
        monkeypatch.setattr(membership, "OWNER_S", 60.0)  # on a busy machine
        harness = WorkersHarness(tmp_path, request.param)
        yield harness
        harness.close()
