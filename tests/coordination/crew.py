"""Several replicas of one process on a real store, on the real clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.clock import LoopClock
from forebay.coordination.protocol.messages import About
from forebay.coordination.replica import Replica
from forebay.coordination.store.valkey import ValkeyStore
from forebay.core import (
    Action,
    Arrived,
    Event,
    NodeChanged,
    Observed,
    Options,
    Reject,
    Route,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

LEASE_S = 1.0
TWO_SLOTS = NodeChanged("gpu1", slots=2, models=("llama",))
PATIENCE_S = 30.0
"""How long a test waits for something that must happen, on a machine with much else to do."""


class Hand:
    """One replica, with what it was told to do."""

    def __init__(self, url: str, number: int, options: Options, lease_s: float = LEASE_S) -> None:
        self.actions: list[Action] = []
        self.store = ValkeyStore(url, lease_s)
        self.replica = Replica(
            About(f"{number:08x}-1", f"http://127.0.0.1:{7800 + number}", "1", "same"),
            options,
            self.actions.append,
            LoopClock(asyncio.get_running_loop()),
            self.store,
            lease_s=lease_s,
        )

    def post(self, *events: Event) -> None:
        for event in events:
            self.replica.post(event)

    @property
    def mode(self) -> str:
        return self.replica.mode

    @property
    def routed(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Route)]

    @property
    def refused(self) -> list[str]:
        return [action.code for action in self.actions if isinstance(action, Reject)]

    async def snapshot(self) -> Snapshot:
        before = len(self.actions)
        self.replica.post(Observed())
        await until(lambda: any(isinstance(a, Snapshot) for a in self.actions[before:]))
        return next(a for a in self.actions[before:] if isinstance(a, Snapshot))


class Crew:
    """A fleet."""

    def __init__(
        self, url: str, size: int, options: Options | None = None, lease_s: float = LEASE_S
    ) -> None:
        self._url = url
        self._options = options or Options()
        self.hands = [Hand(url, number, self._options, lease_s) for number in range(size)]

    async def __aenter__(self) -> Self:
        for hand in self.hands:
            await hand.replica.start()
        await self.all_are("coordinated")
        return self

    async def __aexit__(self, *_: object) -> None:
        for hand in self.hands:
            await hand.replica.close()

    async def all_are(self, mode: str) -> None:
        await until(lambda: all(hand.mode == mode for hand in self.hands))

    async def settled(self) -> None:
        """Wait until one leads, and it has heard of everyone."""

        def settled() -> bool:
            leading = [hand for hand in self.hands if hand.replica.leads]
            return (
                len(leading) == 1
                and all(hand.mode == "coordinated" for hand in self.hands)
                and len(leading[0].replica.statuses()[1]) == len(self.hands)
            )

        await until(settled)

    @property
    def leader(self) -> Hand:
        (leading,) = [hand for hand in self.hands if hand.replica.leads]
        return leading

    @property
    def follower(self) -> Hand:
        return next(hand for hand in self.hands if not hand.replica.leads)

    def everyone(self, event: NodeChanged) -> None:
        for hand in self.hands:
            hand.post(event)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen; looking costs nothing."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - told by sockets
            await asyncio.sleep(0.005)


def arrivals(*names: str) -> list[Arrived]:
    return [Arrived(name, "llama") for name in names]


async def filled(crew: Crew) -> None:
    """Take both slots from the two replicas, and let one more wait at each."""
    crew.everyone(TWO_SLOTS)
    await crew.settled()
    first, second = crew.hands
    first.post(*arrivals("a"))
    second.post(*arrivals("b"))
    await until(lambda: first.routed == ["a"] and second.routed == ["b"])
    first.post(*arrivals("c"))
    await until(lambda: len(first.actions) == 2)
    second.post(*arrivals("d"))
    await until(lambda: len(second.actions) == 2)
