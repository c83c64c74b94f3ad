"""When a fleet changed its leader, or lost its store, without being made to.

On a busy machine a gateway may miss its lease with nobody's help. What follows is the same as after
a fault, so it gets a window of its own; how many there were is told with the verdict.
"""

import asyncio

from harness.fleet.fleet import Fleet
from harness.fleet.journal import Window

MARKS = (
    b'"message":"became leader"',
    b'"message":"lost leadership"',
    b"continuing standalone",
    b"store reachable again",
)
LOOK_S = 0.05
SETTLING_S = 0.5
CHANGE = "a change of leader"


class Elections:
    """Reads along in the gateways' logs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read: dict[int, int] = {}
        self.seen_s: list[float] = []
        """When something of the kind was said, by the loop's clock."""

    async def watch(self) -> None:
        """Read on until cancelled; what has been said before does not count."""
        self._look()
        while True:
            await asyncio.sleep(LOOK_S)
            if self._look():
                self.seen_s.append(asyncio.get_running_loop().time())

    def _look(self) -> bool:
        found = False
        for gateway in self._fleet.gateways:
            with gateway.log.open("rb") as log:
                log.seek(self._read.get(gateway.number, 0))
                new = log.read()
            whole = new.rfind(b"\n") + 1
            self._read[gateway.number] = self._read.get(gateway.number, 0) + whole
            found = found or any(mark in new[:whole] for mark in MARKS)
        return found

    def windows(self, lease_s: float) -> list[Window]:
        """Return the time around each change: from when it may have begun to when it is over."""
        return [Window(at_s - lease_s, at_s + lease_s + SETTLING_S, CHANGE) for at_s in self.seen_s]
