"""Whether every gateway says that it is alive, all the time, whatever is wrong around it."""

import asyncio

from harness.fleet.asking import ask
from harness.fleet.fleet import Fleet, Gateway
from harness.fleet.journal import Missed, Window

EVERY_S = 0.2


class Pulse:
    """Asks every gateway for `/health`, over and over, and notes who answers, and when."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.missed: list[Missed] = []
        self.answered: list[Window] = []

    async def watch(self) -> None:
        """Ask on until cancelled."""
        async with asyncio.TaskGroup() as group:
            for gateway in self._fleet.gateways:
                group.create_task(self._watch(gateway))

    async def _watch(self, gateway: Gateway) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            if await _alive(gateway):
                self.answered.append(Window(asked_s, loop.time()))
            else:
                self.missed.append(Missed(gateway.number, asked_s, loop.time()))
            await asyncio.sleep(EVERY_S)


async def _alive(gateway: Gateway) -> bool:
    try:
        return (await ask(gateway.port, "/health")).status == 200
    except (OSError, EOFError, AssertionError):  # the last is the end of its patience
        return False
