"""Gateways that share one queue through a real Valkey, asked for what another has."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.clock import LoopClock
from forebay.sessions.record import replica_of

from ..conftest import OK, Rig
from ..sessions.session_steps import Http, answer, follow, look, new_session, prompt, until_turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from forebay.testing import FakeNode

PATIENCE_S = 30.0
"""How long a test waits for something that must happen, on a machine with much else to do."""


class RealRig(Rig):
    """A rig on the real clock: leases are in the store's time."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        super().__init__(stack, folder)
        self.clock = LoopClock(asyncio.get_running_loop())  # type: ignore[assignment]

    @property
    def name(self) -> str:
        fleet = self.gateway.parts.membership.fleet
        assert fleet is not None
        return fleet.me


class Crew:
    """Starts gateways on one store."""

    def __init__(self, rig: Rig, url: str) -> None:
        self._rig = rig
        self._url = url
        self.all: list[RealRig] = []

    async def start(self, *nodes: FakeNode, **settings: Any) -> RealRig:
        folder = self._rig.folder / f"g{len(self.all)}"
        folder.mkdir()
        made = RealRig(self._rig.stack, folder)
        coordination = {"url": self._url, "lease_seconds": 2.0}
        await made.start(*nodes, coordination=coordination, **settings)
        self.all.append(made)
        await until(self.is_together)
        return made

    def is_together(self) -> bool:
        """Say whether everyone knows everyone, under one leader."""
        pictures = []
        for one in self.all:
            fleet = one.gateway.parts.membership.fleet
            assert fleet is not None
            pictures.append(fleet.picture())
        there = len(self.all)
        return all(
            seen.mode == "coordinated"
            and len([view for view in seen.replicas if view.state != "lost"]) == there
            for seen in pictures
        )


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - of what the store and others do
            await asyncio.sleep(0.01)


@pytest.fixture
def crew(rig: Rig, valkey_url: str) -> Crew:
    return Crew(rig, valkey_url)


async def test_a_session_is_asked_for_at_the_wrong_one(crew: Crew, rig: Rig) -> None:
    node = await rig.node(slots=2)
    first, second = await crew.start(node), await crew.start(node)
    session = await new_session(second)
    assert replica_of(session) == second.name
    reader = await follow(first, session)
    asked = await prompt(first, session)
    await answer(await node.next_call(), "through both")
    assert (await reader.end_of(asked))["text"] == "through both"
    assert (await until_turn(first, session, asked, "completed"))["text"] == "through both"
    branch = await Http(first).branch(session)
    assert replica_of(branch.body["sessionId"]) == second.name
    await second.gateway.stop(0.0)
    away = await first.get(f"/session/{session}")
    assert (away.status, away.json["error"]["code"]) == (503, "replica_unavailable")


async def test_a_request_is_asked_about_and_cancelled_at_the_wrong_one(
    crew: Crew, rig: Rig
) -> None:
    node = await rig.node(slots=1)
    first, second = await crew.start(node), await crew.start(node)
    for owner, other in ((first, second), (second, first)):
        running, call = await owner.run(node, headers={"x-request-id": "running"})
        waiting = await owner.ask(headers={"x-request-id": "waiting"})
        await owner.wait_until("waiting", 1)
        for there in (owner, other):
            assert (await look(there, "/v1/queue/running"))["state"] == "running"
            assert (await look(there, "/v1/queue/waiting"))["position"] == 1
        assert (await other.get("/v1/queue/waiting", method="DELETE")).status == 200
        assert (await waiting.reply()).status == 499
        await call.answer(OK)
        assert (await running.reply()).status == 200
        for there in (owner, other):
            assert (await there.get("/v1/queue/running")).status == 404


async def test_what_an_operator_does_to_nodes_reaches_all(crew: Crew, rig: Rig) -> None:
    node, more = await rig.node(), await rig.node(models=["other"])
    first, second = await crew.start(node), await crew.start(node)
    body = json.dumps({"name": "more", "url": more.url}).encode()
    assert (await second.get("/admin/nodes", method="POST", body=body)).status == 201
    await until(lambda: first.gateway.parts.nodes.get("more"))
    assert (await first.get("/admin/nodes/more/drain", method="POST")).status == 200
    added = second.gateway.parts.nodes.get("more")
    assert added is not None
    await until(lambda: added.draining)
    assert (await first.get("/admin/nodes/more", method="DELETE")).status == 204
    await until(lambda: second.gateway.parts.nodes.get("more") is None)


async def test_sessions_wait_until_a_gateway_has_joined_the_others(crew: Crew, rig: Rig) -> None:
    """Else it would take a ledger for its own that it shares."""
    node = await rig.node()
    first = await crew.start(node)
    parts = first.gateway.parts
    fleet, parts.membership.fleet = parts.membership.fleet, None
    early = await Http(first).new(model="m")
    assert (early.number, early.code) == (503, "replica_unavailable")
    parts.membership.fleet = fleet
    assert (await Http(first).new(model="m")).number == 201
