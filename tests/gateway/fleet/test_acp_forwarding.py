"""JSON-RPC: each call of a batch is answered by the gateway that has its session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.sessions.record import replica_of

from ..sessions.session_steps import (
    answer,
    answers_itself,
    look,
    new_session,
    post,
)
from .fleet_rig import A, B, C, two, until

if TYPE_CHECKING:
    from .fleet_rig import FleetRig


async def test_a_batch_reaches_every_gateway_it_names(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    await answers_itself(node)
    third = await fleet.start(C, node)
    sessions = {name: await new_session(rig) for name, rig in fleet.rigs.items()}
    calls = [
        rpc(1, "session/prompt", sessionId=sessions[A], prompt="a"),
        rpc(2, "session/prompt", sessionId=sessions[B], prompt="b"),
        rpc(None, "session/prompt", sessionId=sessions[B], prompt="b, quietly"),
        rpc(3, "session/prompt", sessionId=sessions[C], prompt="c"),
        rpc(4, "session/branch", sessionId=sessions[B]),
        rpc(5, "session/prompt", sessionId=f"ses_{B}_{'ab' * 16}", prompt="x"),
        rpc(6, "session/nothing", sessionId=sessions[B]),
        {"jsonrpc": "2.0", "method": 7, "id": 7, "params": {"sessionId": sessions[B]}},
        rpc(8, "session/new", model="m"),
    ]
    answers = (await post(wrong, "/acp", calls)).json
    assert [one["id"] for one in answers] == [1, 2, 3, 4, 5, 6, 7, 8]
    by_id = {one["id"]: one for one in answers}
    assert all("promptId" in by_id[number]["result"] for number in (1, 2, 3))
    assert replica_of(by_id[4]["result"]["sessionId"]) == B
    assert by_id[5]["error"]["data"]["errorKind"] == "session_not_found"
    assert (by_id[6]["error"]["code"], by_id[7]["error"]["code"]) == (-32601, -32600)
    assert replica_of(by_id[8]["result"]["sessionId"]) == A
    for name, count in ((A, 1), (B, 2), (C, 1)):
        rig = fleet.rigs[name]
        live = (await rig.gateway.parts.sessions.ready()).find(sessions[name], None)
        await until(rig, lambda live=live, count=count: len(live.conversation.turns) == count)
    assert third is fleet.rigs[C]
    assert owner is fleet.rigs[B]


async def test_the_order_of_a_batch_is_kept_there(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    calls = [rpc(i, "session/prompt", sessionId=session, prompt=f"p{i}") for i in range(5)]
    answers = (await post(wrong, "/acp", calls)).json
    asked = [one["result"]["promptId"] for one in answers]
    pending = await look(owner, f"/session/{session}/pending-prompts")
    assert [one["promptId"] for one in pending["prompts"]] == asked
    assert [one["text"] for one in pending["prompts"]] == [f"p{i}" for i in range(5)]
    await answers_itself(node)
    await answer(await node.next_call())


async def test_a_notification_for_another_gateway_is_answered_with_nothing(
    fleet: FleetRig,
) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    reply = await post(wrong, "/acp", rpc(None, "session/prompt", sessionId=session, prompt="p"))
    assert (reply.status, reply.body) == (204, b"")
    await answer(await node.next_call())
    await fleet.stop(B)
    lost = await post(wrong, "/acp", rpc(None, "session/prompt", sessionId=session, prompt="p"))
    assert (lost.status, lost.body) == (204, b"")


def rpc(call_id: int | None, method: str, **params: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return call if call_id is None else {**call, "id": call_id}
