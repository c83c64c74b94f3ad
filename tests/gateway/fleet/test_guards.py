"""Guards at a gateway: registered, used, refused; and the slots that several gateways share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from forebay.gateway.gateway import Gateway
from forebay.nodes.gpu import GpuReading
from forebay.settings import Settings
from forebay.testing import RawClient

from ..conftest import CHAT, OK
from .guard_steps import HEADERS, TOKEN, TURNS, guard, hear, nodes, start, until

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_guard_registers_its_node_and_requests_go_through_it(rig: Rig) -> None:
    node = await rig.node(models=("m", "other"))
    await start(rig)
    assert (await rig.get("/v1/models")).json["data"] == []
    await guard(rig, node, gpu=GpuReading(0.5, 3, 8))
    known = await until(rig, "g1", "online")
    assert (known["kind"], known["guarded"], known["slots"]) == ("llama-cpp", True, 1)
    assert known["gpu_load"] == 0.5
    client, call = await rig.run(node)
    assert TOKEN not in call.raw_head.decode()
    await call.answer(OK)
    reply = await client.reply()
    assert (reply.status, reply.headers["x-forebay-node"]) == (200, "g1")


async def test_a_caller_s_own_key_reaches_the_backend_behind_the_guard(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    await guard(rig, node)
    await until(rig, "g1", "online")
    client, call = await rig.run(
        node, headers={"Authorization": "Bearer k", "X-Forebay-Guard-Token": "forged"}
    )
    assert call.headers["authorization"] == "Bearer k"
    assert "x-forebay-guard-token" not in call.headers
    await call.answer(OK)
    await client.reply()


async def test_what_a_caller_sends_as_the_token_reaches_no_node(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node)
    client, call = await rig.run(node, headers={"X-Forebay-Guard-Token": TOKEN})
    assert "x-forebay-guard-token" not in call.headers
    await call.answer(OK)
    await client.reply()


async def test_the_guard_s_slots_are_the_gateway_s_not_the_backend_s(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig)
    await guard(rig, node, slots=2)
    assert (await until(rig, "g1", "online"))["slots"] == 2
    running = [await rig.run(node) for _ in range(2)]
    (waiting,) = await rig.line_up(1)
    for client, call in running:
        await call.answer(OK)
        await client.reply()
    await (await node.next_call()).answer(OK)
    assert (await waiting.reply()).status == 200
    assert node.max_running == 2


async def test_two_gateways_never_have_more_running_than_the_guard_has_slots(rig: Rig) -> None:
    node = await rig.node()
    first = await start(rig)
    settings: dict[str, Any] = {
        "server": {"port": 0},
        "guard": {"token_env": "T"},
        "jobs": {"database": f"sqlite:///{rig.folder}/other.db"},
    }
    second = Gateway(Settings(**settings), clock=rig.clock, environ={"T": TOKEN})
    await rig.stack.enter_async_context(second)
    guarding = await guard(rig, node, first, second)
    await until(rig, "g1", "online")

    async def answer(call: Any) -> None:
        await rig.get("/health")
        await call.answer(OK)

    node.automatic = answer
    clients: list[RawClient] = []
    for gateway in (first, second) * 10:
        client = await RawClient.connect("127.0.0.1", gateway.port)
        clients.append(await rig.stack.enter_async_context(client))
        await client.post(CHAT, {"model": "m", "messages": []})
    replies = [asyncio.ensure_future(client.reply()) for client in clients]
    for _ in range(TURNS):
        if all(reply.done() for reply in replies):
            break
        rig.clock.advance(0.5)  # a node that was busy rests for a second
        await rig.get("/health")
    assert {reply.result().status for reply in replies} == {200}
    assert len(node.calls) == 20
    assert node.max_running == 1
    assert guarding.slots.refused > 0, "the two never met: this has shown nothing"


async def test_a_wrong_token_is_refused_and_so_is_any_where_none_is_set(rig: Rig) -> None:
    await start(rig)
    for headers in ({}, {"X-Forebay-Guard-Token": "x"}, {"Authorization": f"Bearer {TOKEN}"}):
        reply = await hear(rig, headers)
        assert (reply.status, reply.json["error"]["code"]) == (403, "guard_refused")
    assert await nodes(rig) == {}


async def test_without_a_token_in_the_settings_no_guard_may_register(rig: Rig) -> None:
    await rig.start()
    for headers in (HEADERS, {"X-Forebay-Guard-Token": ""}):
        reply = await hear(rig, headers)
        assert (reply.status, reply.json["error"]["code"]) == (403, "guard_refused")
        assert "guard.token_env" in reply.json["error"]["message"]


async def test_keys_neither_help_nor_hinder_a_guard(rig: Rig) -> None:
    key = {"name": "a", "key_env": "A", "admin": True}
    await start(rig, keys=[key], environ={"T": TOKEN, "A": "secret"})
    assert (await hear(rig, {"Authorization": "Bearer secret"})).status == 403
    assert (await hear(rig)).status == 201


async def test_a_name_that_a_configured_node_has_is_not_given_away(rig: Rig) -> None:
    await start(rig, await rig.node())
    reply = await hear(rig, name="n1")
    assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")
    assert "--name" in reply.json["error"]["message"]
    assert (await nodes(rig))["n1"]["guarded"] is False


async def test_two_guards_of_one_name_do_not_fight_over_it(rig: Rig) -> None:
    await start(rig)
    assert (await hear(rig)).status == 201
    assert (await hear(rig)).status == 200
    other = {"instance": "instance-2", "url": "http://127.0.0.1:10"}
    assert (await hear(rig, **other)).status == 409
    rig.clock.advance(6.0)  # the first has gone: its name is free
    assert (await hear(rig, **other)).status == 201
    assert (await nodes(rig))["g1"]["url"] == "http://127.0.0.1:10"
    assert (await hear(rig)).status == 409


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a b"), ("name", 7), ("url", "ftp://x"), ("url", "http://x/path"),
        ("slots", 0), ("slots", "2"), ("state", "asleep"), ("gpu_load", 1.5),
        ("in_flight", -1), ("instance", "short"), ("vram_used_bytes", -1),
    ],
)  # fmt: skip
async def test_a_heartbeat_that_makes_no_sense_is_refused_by_its_field(
    rig: Rig, field: str, value: object
) -> None:
    await start(rig)
    reply = await hear(rig, **{field: value})
    assert (reply.status, reply.json["error"]["param"]) == (400, field)
    assert await nodes(rig) == {}


async def test_a_guard_s_backend_is_told_the_class_and_the_user_and_no_other_node_is(
    rig: Rig,
) -> None:
    plain, guarded = await rig.node(), await rig.node()
    await start(rig, plain)
    headers = {"X-Forebay-Priority": " HIGH ", "X-Forebay-User": "of the header"}
    user = "ann 山田\r\nx-forged: yes\r\n" + "x" * 500
    client, call = await rig.run(plain, headers=headers, user=user)
    assert not [name for name in call.headers if name.startswith("x-forebay")]
    await guard(rig, guarded)
    await until(rig, "g1", "online")
    _, told = await rig.run(guarded, headers=headers, user=user)
    assert told.headers["x-forebay-priority"] == "high"
    assert told.headers["x-forebay-user"].startswith("ann%20%E5%B1%B1%E7%94%B0%0D%0Ax-forged:")
    assert unquote(told.headers["x-forebay-user"]) == user[:256].encode()[:256].decode()
    assert told.raw_head.lower().count(b"x-forebay-priority") == 1
    for one in (call, told):
        await one.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_guard_s_backend_is_told_the_class_as_the_key_caps_it(rig: Rig) -> None:
    node = await rig.node()
    key = {"name": "app", "key_env": "K", "max_priority": "normal", "user": "team", "admin": True}
    rig.headers = {"Authorization": "Bearer secret"}
    await start(rig, keys=[key], environ={"T": TOKEN, "K": "secret"})
    await guard(rig, node)
    await until(rig, "g1", "online")
    asked = {"X-Forebay-Priority": "high", "X-Forebay-User": "someone else"}
    client, call = await rig.run(node, headers={**rig.headers, **asked})
    assert (call.headers["x-forebay-priority"], call.headers["x-forebay-user"]) == (
        "normal",
        "team",
    )
    await call.answer(OK)
    await client.reply()
