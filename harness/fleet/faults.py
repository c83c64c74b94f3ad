"""Doing to a fleet what a schedule says, and undoing it."""

import asyncio
import random

from msgspec.structs import replace

from harness.fleet.fleet import Fleet, Gateway
from harness.fleet.leading import leader_of
from harness.fleet.schedule import LEADER, OF_ONE, SLOW_S, Fault
from harness.fleet.store import Store


class Faults:
    """Performs the faults of a schedule on a fleet, one after the other."""

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        self._fleet = fleet
        self._draw = draw
        self.happened: list[tuple[Fault, float, float]] = []
        """What was done, when it began and when it was cured, by the loop's clock."""

    async def follow(self, schedule: tuple[Fault, ...]) -> None:
        """Perform a whole schedule, from now."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for fault in schedule:
            await asyncio.sleep(max(0.0, start_s + fault.at_s - loop.time()))
            began_s = loop.time()
            aimed = await self._perform(fault)
            self.happened.append((aimed, began_s, loop.time()))

    async def _perform(self, fault: Fault) -> Fault:
        """Perform it; return it with the gateway that it befell."""
        if fault.kind in OF_ONE:
            gateway = self._target(fault.target)
            await self._on_gateway(fault, gateway)
            return replace(fault, target=gateway.number)
        assert self._fleet.store is not None
        await self._on_store(fault, self._fleet.store)
        return fault

    def away(self) -> list[tuple[int, float, float]]:
        """Return which gateways were dead or frozen, from when to when."""
        kinds = ("kill", "freeze")
        return [
            (fault.target, from_s, to_s)
            for fault, from_s, to_s in self.happened
            if fault.kind in kinds
        ]

    def _target(self, number: int) -> Gateway:
        if number != LEADER:
            return self._fleet.gateways[number - 1]
        return leader_of(self._fleet) or self._draw.choice(self._fleet.gateways)

    async def _on_gateway(self, fault: Fault, gateway: Gateway) -> None:
        link = self._fleet.links[gateway.number - 1]
        if fault.kind == "kill":
            await gateway.kill()
            await asyncio.sleep(fault.for_s)
            await self._fleet.restart(gateway)
        elif fault.kind == "freeze":
            gateway.freeze()
            await asyncio.sleep(fault.for_s)
            gateway.thaw()
        else:
            if fault.kind == "cut":
                link.cut()
            else:
                await link.refuse()
            await asyncio.sleep(fault.for_s)
            await link.heal()

    async def _on_store(self, fault: Fault, store: Store) -> None:
        if fault.kind == "kill_store":
            await store.kill()
            await asyncio.sleep(fault.for_s)
            store.start()
            await store.ready()
        elif fault.kind == "pause_store":
            store.freeze()
            await asyncio.sleep(fault.for_s)
            store.thaw()
        elif fault.kind == "slow_store":
            await self._slow_down(fault.for_s)
        elif fault.kind == "flush_scripts":
            await store.tell("SCRIPT", "FLUSH")
        else:
            await store.tell("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def _slow_down(self, for_s: float) -> None:
        for link in self._fleet.links:
            link.delay_s = SLOW_S
        await asyncio.sleep(for_s)
        for link in self._fleet.links:
            await link.heal()
