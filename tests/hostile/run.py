"""One run: many clients at once, then silence, then the count of what is left."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from .acts import GOOD
from .odd_plays import ODD_PLAYS
from .oracle import Oracle
from .plays import PLAYS
from .stand import BAD_NODES, BAD_SLOTS, GOOD_NODES, GOOD_SLOTS
from .talk import Stopped, Talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plays import Play
    from .stand import Stand

CLIENTS = 48
CROWD = 450
"""Connections at once at the end of a run: more than `server.connections_max`."""
SETTLE_S = 20.0
"""How long everything may take to come back: each limit of the gateway is far shorter."""
RENEW_S = 0.05
"""How often one of the bad nodes gets a new chance: two failures take it offline."""
SERVED_MIN = 0.25
"""The least share of requests that must have been served: a run in which everything fails is no
proof of anything. Half of the plays break off, or ask for what is refused."""
IDLE_NODE_CONNECTIONS_MAX = 2 * (GOOD_NODES * GOOD_SLOTS + BAD_NODES * BAD_SLOTS)
"""One more than are in use at most; twice as many leaves room for those that are being opened."""
NOT_FOR_GUARDS = {
    "never_finishes", "stops_reading", "too_much",  # its limits are those of production
    "mixed_pages", "large_pages", "other_families",  # it has no pages, and speaks all families
    "bad_bodies", "lies_about_its_length",  # it does not look into bodies
}  # fmt: skip


@dataclass
class Report:
    """How a run went."""

    seed: str
    oracle: Oracle
    figures: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    acts: dict[str, int] = field(default_factory=dict)
    phases: list[tuple[str, float]] = field(default_factory=list)
    """What was done when, in seconds."""

    @property
    def failures(self) -> list[str]:
        return [*self.faults, *self.oracle.failures]

    def __str__(self) -> str:
        endings = ", ".join(f"{name} {count}" for name, count in self.oracle.endings.most_common())
        codes = ", ".join(f"{name} {count}" for name, count in self.oracle.codes.most_common())
        shown = [f"seed {self.seed}: {self.oracle.asked} requests; {endings}; errors: {codes}"]
        bad = {name: count for name, count in self.acts.items() if name not in GOOD}
        shown.append(f"  {sum(bad.values())} acts of bad nodes, {len(bad)} kinds")
        shown.append("  " + ", ".join(f"{name} after {at_s:.1f} s" for name, at_s in self.phases))
        shown += [f"  FAILED {failure}" for failure in self.failures]
        return "\n".join(shown)


class Run:
    """Plays against a stand until so many requests have been made."""

    def __init__(self, stand: Stand, seed: str, requests: int, only: Sequence[str] = ()) -> None:
        self._stand = stand
        self._requests = requests
        self.report = Report(seed, Oracle(seed, transparent=stand.is_guard))
        self._plays: list[Play] = []
        self._weights: list[int] = []
        for weight, play in (*PLAYS, *ODD_PLAYS):
            name = play.__name__
            if (not only or name in only) and not (stand.is_guard and name in NOT_FOR_GUARDS):
                self._plays.append(play)
                self._weights.append(weight)
        self._number = 0
        self._health: list[int] = []
        self._started_s = 0.0

    async def play(self) -> Report:
        stand, report = self._stand, self.report
        self._started_s = asyncio.get_running_loop().time()
        before = await stand.figures()
        beside = [asyncio.create_task(self._look_at_health())]
        if not stand.is_guard:
            beside.append(asyncio.create_task(self._renew_bad_nodes()))
        try:
            await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
            report.phases.append(("load", self._s()))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if stand.program.ended is None:
            await self._crowd()
            report.phases.append(("crowd", self._s()))
            await self._settle(before)
            report.phases.append(("settled", self._s()))
        await self._conclude()
        return report

    def _s(self) -> float:
        return asyncio.get_running_loop().time() - self._started_s

    # -- the load

    async def _client(self) -> None:
        oracle = self.report.oracle
        while oracle.asked < self._requests and self._stand.program.ended is None:
            self._number += 1
            await self._one(self._number)

    async def _one(self, number: int) -> None:
        rng = Random(f"{self.report.seed}/{number}")
        (play,) = rng.choices(self._plays, self._weights)
        name = f"{play.__name__} {number}"
        talk = Talk(name, self._stand.port, rng, self.report.oracle)
        try:
            await play(talk)
        except Stopped:
            pass
        except Exception as error:
            self.report.oracle.fail(name, f"the play itself failed: {error!r}")
        finally:
            talk.leave_unanswered()
            talk.close()

    async def _crowd(self) -> None:
        """Come all at once: more than may be connected."""
        oracle = self.report.oracle
        talks = [
            Talk(f"crowd {i}", self._stand.port, Random(f"{self.report.seed}/crowd/{i}"), oracle)
            for i in range(CROWD)
        ]

        async def comes(talk: Talk) -> None:
            with contextlib.suppress(Stopped):
                await talk.send(talk.ask(may=frozenset({"served", "error", "none"})))
                await talk.hear_all()

        await asyncio.gather(*map(comes, talks))
        for talk in talks:
            talk.close()

    async def _look_at_health(self) -> None:
        while True:
            try:
                self._health.append(await self._stand.health())
            except (OSError, TimeoutError) as error:
                self._health.append(0)
                self.report.faults.append(f"/health does not answer: {error!r}")
            await asyncio.sleep(0.25)

    async def _renew_bad_nodes(self) -> None:
        number = 0
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                await self._stand.renew_bad_node(number % BAD_NODES)
            number += 1
            await asyncio.sleep(RENEW_S)

    # -- what is left

    async def _settle(self, before: dict[str, float]) -> None:
        """Wait until nothing is held that was not held before."""
        left: list[str] = []
        for _ in range(int(SETTLE_S / 0.2)):
            try:
                self.report.figures = now = await self._stand.figures()
            except (OSError, TimeoutError) as error:
                left = [f"/metrics does not answer: {error!r}"]
                break
            left = leftovers(before, now)
            if not left:
                break
            await asyncio.sleep(0.2)
        self.report.faults += left
        orphaned = self.report.figures.get("leases_orphaned_total", 0.0)
        if orphaned > before.get("leases_orphaned_total", 0.0):
            self.report.faults.append(f"the watchdog took {orphaned:g} slots back in all")

    async def _conclude(self) -> None:
        stand, report = self._stand, self.report
        if stand.program.ended is not None:
            last = "".join(stand.program.said[-2:]).strip()
            report.faults.append(f"it has ended with {stand.program.ended}: {last}")
        if stand.program.complaints:
            for gist, count in stand.program.complaints.most_common(10):
                report.faults.append(f"{count} tracebacks in its log: {gist}")
            stand.program.complaints.clear()
        told = await stand.nodes.report()
        faults, acts = told["faults"], told["acts"]
        assert isinstance(faults, list)
        assert isinstance(acts, dict)
        report.acts = acts
        report.faults += [f"at a node: {fault}" for fault in faults]
        served = report.oracle.endings["served"]
        if served < SERVED_MIN * self._requests:
            report.faults.append(f"only {served} of {report.oracle.asked} requests were served")
        if 200 not in self._health:
            report.faults.append(f"/health has never been 200: {self._health[:10]}")


def leftovers(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Say what an idle gateway should not hold."""
    limits = {
        "leases": 0.0,
        "body_bytes": 0.0,
        "connections client": 1.0,  # the one that asks
        "connections node": float(IDLE_NODE_CONNECTIONS_MAX),
        "tasks": before.get("tasks", 0.0),
    }
    limits |= {name: 0.0 for name in now if name.startswith(("node_in_flight", "queue_depth"))}
    return [
        f"{now[name]:g} {name} are left, not {limit:g}"
        for name, limit in limits.items()
        if name in now and now[name] > limit
    ]
