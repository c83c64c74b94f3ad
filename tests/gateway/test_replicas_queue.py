"""Requests and nodes, with several gateways: it does not matter which of them is asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.core import Describe, Inspected
from forebay.gateway import parts as parts_module
from forebay.gateway import replicas

from .conftest import OK
from .fleet_rig import KEYS, SECRETS, A, B, C, bearer, two, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core import Event
    from forebay.testing import FakeNode

    from .conftest import Rig
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
    monkeypatch.setattr(parts_module, "DESCRIBE_S", 0.01)
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
    monkeypatch.setattr(parts_module, "DESCRIBE_S", 0.5)
    rig, node, leader = await far()
    client, call = await rig.run(node, headers={"x-request-id": "mine"})
    asking = asyncio.ensure_future(rig.get("/v1/queue/mine"))
    await until(rig, lambda: leader.asked)
    await call.answer(OK)
    assert (await client.reply()).status == 200
    assert (await asking).status == 404
    assert rig.gateway.parts.relay._asked == {}


# -- operators


async def nodes(rig: Rig) -> dict[str, str]:
    listed = (await rig.get("/admin/nodes")).json["data"]
    return {node["name"]: node["state"] for node in listed}


async def until_nodes(rig: Rig, expected: dict[str, str]) -> None:
    for _ in range(500):
        if await nodes(rig) == expected:
            return
    raise AssertionError(f"{await nodes(rig)}, not {expected}")


async def test_what_is_done_to_a_node_holds_everywhere(fleet: FleetRig) -> None:
    here, there, node = await two(fleet)
    more = await fleet.node(models=["other"])
    body = json.dumps({"name": "more", "url": more.url, "slots": 3, "models": ["other"]}).encode()
    assert (await here.get("/admin/nodes", method="POST", body=body)).status == 201
    for rig in (here, there):
        await until_nodes(rig, {"n1": "online", "more": "online"})
    added = there.gateway.parts.nodes.get("more")
    assert added is not None
    assert (added.settings.slots, added.settings.models) == (3, ("other",))
    await there.get("/admin/nodes/more/drain", method="POST")
    await until_nodes(here, {"n1": "online", "more": "draining"})
    await here.get("/admin/nodes/more/resume", method="POST")
    await until_nodes(there, {"n1": "online", "more": "online"})
    await there.get("/admin/nodes/n1", method="DELETE")
    await until_nodes(here, {"more": "online"})
    told = [
        json.loads(payload)["action"] for one in (A, B) for _, payload in fleet.fleets[one].told
    ]
    assert sorted(told) == ["add", "drain", "remove", "resume"]  # and nothing is told on
    assert node is not None


async def test_to_hear_it_again_changes_nothing(
    fleet: FleetRig, caplog: pytest.LogCaptureFixture
) -> None:
    here, there, node = await two(fleet)
    hear = there.gateway.parts.operator.hear
    backend = there.gateway.parts.nodes.get("n1")
    for _ in range(2):
        hear("nodes", word("add", "n1", url=node.url))
        hear("nodes", word("remove", "nobody"))
        hear("nodes", word("resume", "n1"))
    assert there.gateway.parts.nodes.get("n1") is backend
    assert caplog.records == []
    assert fleet.fleets[A].told == fleet.fleets[B].told == []
    assert await nodes(here) == {"n1": "online"}


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"action": "explode", "name": "n1"}',
        b'{"action": "add", "name": "x"}',
        b'{"action": "add", "name": "x y", "node": {"url": "http://h:1"}}',
        b'{"action": "add", "name": "x", "node": {"url": "http://h:1/path"}}',
        b'{"action": "add", "name": "x", "node": {"url": "http://h:1", "colour": "red"}}',
        b'{"action": "add", "name": "x", "node": {"url": "http://h:1", "api_key_env": "HOME"}}',
        b'{"action": "add", "name": "n1", "node": {"url": "http://other:1"}}',
        b'{"action": "add", "name": "x", "node": {"url": 7}}',
        b'{"action": "remove", "name": 7}',
        b"[" * 100_000,
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_logged_and_changes_nothing(
    fleet: FleetRig, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, there, _ = await two(fleet)
    before = await nodes(there)
    there.gateway.parts.operator.hear("nodes", payload)
    assert await nodes(there) == before
    assert len(caplog.records) == 1
    there.gateway.parts.operator.hear("something else", payload)
    assert len(caplog.records) == 1


def word(action: str, name: str, **node: Any) -> bytes:
    return json.dumps({"action": action, "name": name, "node": node}).encode()
