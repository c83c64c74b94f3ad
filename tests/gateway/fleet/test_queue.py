"""Requests and nodes, with several gateways: it does not matter which of them is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.core import Describe, Inspected
from forebay.gateway.fleet import peers as replicas
from forebay.gateway.routes import queue as queue_module

from ..conftest import OK
from .fleet_rig import KEYS, SECRETS, A, B, C, bearer, two, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core import Event
    from forebay.testing import FakeNode

    from ..conftest import Rig
    from .fleet_rig import FleetRig


async def test_a_request_is_looked_at_and_cancelled_through_another(fleet: FleetRig) -> None:
    node = await fleet.node(slots=1)
    wrong, owner = await fleet.start(A, node), await fleet.start(B, node)
    _, call = await owner.run(node, headers={"x-request-id": "running"})
    client = await owner.ask(headers={"x-request-id": "waiting/one"})
    await owner.wait_until("waiting", 1)
    seen = (await wrong.get("/v1/queue/waiting/one")).json
    assert (seen["id"], seen["state"], seen["position"]) == ("waiting/one", "waiting", 1)
    assert (await wrong.get("/v1/queue/running")).json["state"] == "running"
    reply = await wrong.get("/v1/queue/waiting/one", method="DELETE")
    assert reply.json == {"id": "waiting/one", "state": "cancelled"}
    assert (await client.reply()).status == 499
    await call.answer(OK)
    unknown = await wrong.get("/v1/queue/waiting/one")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "not_found")


async def test_the_other_decides_who_may_see_a_request(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet, keys=KEYS, environ=SECRETS)
    _, call = await owner.run(node, headers={"x-request-id": "mine", **bearer("sk-one")})
    for there in (wrong, owner):
        assert (await there.get("/v1/queue/mine", bearer("sk-one"))).status == 200
        assert (await there.get("/v1/queue/mine", bearer("sk-boss"))).status == 200
        assert (await there.get("/v1/queue/mine", bearer("sk-two"))).status == 404
        assert (await there.get("/v1/queue/mine")).status == 401
    await call.answer(OK)


async def test_a_question_goes_no_further_than_one_gateway(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    _, call = await owner.run(node, headers={"x-request-id": "mine"})
    reply = await wrong.get("/v1/queue/mine", {"x-forebay-hop": C})
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")
    await call.answer(OK)


async def test_where_nobody_can_say_who_has_it_that_is_said(
    fleet: FleetRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, _, _ = await two(fleet)
    fleet.directory.mode = "seeking"
    reply = await wrong.get("/v1/queue/mine")
    assert (reply.status, reply.json["error"]["code"]) == (503, "replica_unavailable")
    assert "retry-after" in reply.headers
    fleet.directory.mode = "coordinated"
    assert (await wrong.get("/v1/queue/mine")).status == 404
    monkeypatch.setattr(replicas, "OWNER_S", 0.01)
    fleet.fleets[A].answers_s = 60.0
    late = await wrong.get("/v1/queue/mine")
    assert (late.status, late.json["error"]["code"]) == (503, "replica_unavailable")


# -- a leader in another process


class Elsewhere:
    """A coordinator that answers questions about tickets when the test says so."""

    def __init__(self, rig: Rig) -> None:
        self._here = rig.gateway.parts.coordinator
        self.asked: list[str] = []
        self._relay = rig.gateway.parts.relay
        self._relay.post = self.post

    def post(self, event: Event) -> None:
        if isinstance(event, Inspected):
            self.asked.append(event.id)
        else:
            self._here.post(event)

    def tell(self, ticket_id: str) -> None:
        self._relay.perform(Describe(ticket_id, "waiting", 1.0, 1, "busy", position=7))


@pytest.fixture
async def far(fleet: FleetRig) -> Callable[[], Any]:
    async def start() -> tuple[Rig, FakeNode, Elsewhere]:
        node = await fleet.node()
        rig = await fleet.start(A, node)
        return rig, node, Elsewhere(rig)

    return start


async def test_an_answer_of_another_process_is_waited_for(far: Callable[[], Any]) -> None:
    rig, node, leader = await far()
    _, call = await rig.run(node, headers={"x-request-id": "mine"})
    asking = asyncio.ensure_future(rig.get("/v1/queue/mine"))
    await until(rig, lambda: leader.asked)
    assert not asking.done()
    leader.tell("mine")
    assert (await asking).json["position"] == 7
    await call.answer(OK)


async def test_one_that_does_not_come_is_given_up_and_leaves_nothing(
    far: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "DESCRIBE_S", 0.01)
    rig, node, leader = await far()
    _, call = await rig.run(node, headers={"x-request-id": "mine"})
    for _ in range(2):
        reply = await rig.get("/v1/queue/mine")
        assert (reply.status, reply.json["error"]["code"]) == (503, "replica_unavailable")
    assert rig.gateway.parts.relay._asked == {}
    leader.tell("mine")  # too late, and harmless
    await call.answer(OK)


async def test_a_request_that_ends_meanwhile_is_gone(
    far: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "DESCRIBE_S", 0.5)
    rig, node, leader = await far()
    client, call = await rig.run(node, headers={"x-request-id": "mine"})
    asking = asyncio.ensure_future(rig.get("/v1/queue/mine"))
    await until(rig, lambda: leader.asked)
    await call.answer(OK)
    assert (await client.reply()).status == 200
    assert (await asking).status == 404
    assert rig.gateway.parts.relay._asked == {}
