"""`/acp`: JSON-RPC 2.0 as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..jobs.job_steps import ENVIRON, KEYS
from .session_steps import answer, look, new_session, post, started

if TYPE_CHECKING:
    from ..conftest import Rig


@pytest.mark.parametrize(
    ("body", "code", "call_id"),
    [
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b"[]", -32600, None),
        (b"5", -32600, None),
        ({"id": 1, "method": "session/new"}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600, 1),
        ({"jsonrpc": "2.0", "id": "x", "method": "session/fly"}, -32601, "x"),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": [1]}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}, -32602, 1),
    ],
)
async def test_json_rpc_errors_have_the_standard_numbers(
    rig: Rig, body: object, code: int, call_id: object
) -> None:
    await started(rig)
    reply = await post(rig, "/acp", body)
    assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (200, code, call_id)


async def test_a_batch_is_answered_call_by_call_and_notifications_are_not(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    base = {"jsonrpc": "2.0", "method": "session/prompt"}
    reply = await post(
        rig,
        "/acp",
        [
            {**base, "id": "a", "params": {"sessionId": session, "prompt": "first"}},
            {**base, "params": {"sessionId": session, "prompt": "a notification"}},
            {**base, "id": "b", "params": {"sessionId": session}},
            {"jsonrpc": "2.0", "id": "c", "method": "nope"},
        ],
    )
    answers = {one["id"]: one for one in reply.json}
    assert set(answers) == {"a", "b", "c"}
    assert answers["a"]["result"]["promptId"]
    assert (answers["b"]["error"]["code"], answers["c"]["error"]["code"]) == (-32602, -32601)
    listed = (await look(rig, f"/session/{session}/pending-prompts"))["prompts"]
    assert [one["text"] for one in listed] == ["first", "a notification"]
    await answer(await node.next_call())
    await answer(await node.next_call())


async def test_notifications_alone_are_answered_with_nothing(rig: Rig) -> None:
    await started(rig)
    call = {"jsonrpc": "2.0", "method": "session/new", "params": {"model": "m"}}
    for body in (call, [call, call]):
        reply = await post(rig, "/acp", body)
        assert (reply.status, reply.body) == (204, b"")
    assert "forebay_sessions 3.0" in (await rig.get("/metrics")).body.decode()


async def test_a_batch_is_bounded(rig: Rig) -> None:
    await started(rig)
    reply = await post(rig, "/acp", [{"jsonrpc": "2.0", "id": 1, "method": "x"}] * 65)
    assert reply.json["error"]["code"] == -32600


async def test_json_rpc_needs_a_key_like_everything_else(rig: Rig) -> None:
    await started(rig, keys=KEYS, environ=ENVIRON)
    reply = await post(rig, "/acp", {"jsonrpc": "2.0", "id": 1, "method": "session/new"})
    assert reply.status == 401


@pytest.mark.parametrize("call_id", [{"a": 1}, True, False, [1]])
async def test_a_call_whose_id_is_none_is_answered_with_null(rig: Rig, call_id: object) -> None:
    await started(rig)
    call = {"jsonrpc": "2.0", "id": call_id, "method": "session/new", "params": {"model": "m"}}
    reply = await post(rig, "/acp", call)
    assert (reply.status, reply.json["id"]) == (200, None)
    assert reply.json["error"]["code"] == -32600


@pytest.mark.parametrize("call_id", [b"1" + b"0" * 40, b"1e400", b"-1" + b"0" * 400])
async def test_a_call_with_a_huge_number_as_its_id_is_answered(rig: Rig, call_id: bytes) -> None:
    await started(rig)
    body = b'{"jsonrpc": "2.0", "id": %b, "method": "session/fly"}' % call_id
    reply = await post(rig, "/acp", body)
    assert reply.status == 200
    assert reply.json["error"]["code"] in (-32601, -32600, -32700)
