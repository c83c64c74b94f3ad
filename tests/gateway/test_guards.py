"""Guards at a gateway: registered, heard, lost, gone; and the slots that several gateways share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway
from forebay.gateway.guarded_nodes import FORGOTTEN_S
from forebay.guard.guard import Guard
from forebay.guard.options import GuardOptions
from forebay.nodes.gpu import GpuMeter, GpuReading
from forebay.settings import Settings
from forebay.testing import RawClient

from .conftest import CHAT, OK

if TYPE_CHECKING:
    from forebay.testing import FakeNode, Reply

    from .conftest import Rig

TOKEN = "open-sesame"
HEADERS = {"X-Forebay-Guard-Token": TOKEN, "Content-Type": "application/json"}
TURNS = 2000


def beat(**changes: Any) -> dict[str, Any]:
    """Return a heartbeat as a guard sends it."""
    said = {
        "name": "g1",
        "url": "http://127.0.0.1:9",
        "instance": "instance-1",
        "state": "idle",
        "slots": 1,
    }
    return {**said, **changes}


async def start(rig: Rig, *nodes: FakeNode, **settings: Any) -> Gateway:
    """Start a gateway that takes guards."""
    more = {"guard": {"token_env": "T"}, "environ": {"T": TOKEN}, **settings}
    return await rig.start(*nodes, **more)


async def hear(rig: Rig, *headers: dict[str, str], **changes: Any) -> Reply:
    """Send a heartbeat."""
    client = await rig.client()
    await client.post("/guard/nodes", beat(**changes), headers[0] if headers else HEADERS)
    return await client.reply()


async def guard(rig: Rig, node: FakeNode, *gateways: Gateway, **options: Any) -> Guard:
    """Start a guard in front of the node, registered with these gateways."""
    urls = tuple(f"http://127.0.0.1:{gateway.port}" for gateway in gateways or (rig.gateway,))
    reading = options.pop("gpu", None)
    made = GuardOptions(
        backend=node.url, port=0, gateways=urls, token=TOKEN, **{"name": "g1", **options}
    )
    started = Guard(made, rig.clock, GpuMeter(lambda: reading))
    return await rig.stack.enter_async_context(started)


async def nodes(rig: Rig) -> dict[str, dict[str, Any]]:
    """Return what the gateway knows of its nodes, by name."""
    return {node["name"]: node for node in (await rig.get("/admin/nodes")).json["data"]}


async def until(rig: Rig, name: str, state: str | None) -> dict[str, Any]:
    """Wait, without letting time pass, until a node is in that state; None: until it is gone."""
    for _ in range(TURNS):
        known = (await nodes(rig)).get(name, {})
        if known.get("state") == state:
            return known
    raise AssertionError(f"{name} is {known.get('state')}, not {state}")


async def pass_beats(rig: Rig, count: int) -> None:
    """Let heartbeats come and go."""
    for _ in range(count):
        rig.clock.advance(2.0)
        await settle(rig)


async def settle(rig: Rig) -> None:
    """Let what is on its way arrive."""
    for _ in range(10):
        await rig.get("/health")


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


async def test_a_guard_that_falls_silent_is_out_and_who_waits_goes_elsewhere(rig: Rig) -> None:
    lost, other = await rig.node(), await rig.node()
    await start(rig, other)
    held, call = await rig.run(other)
    guarding = await guard(rig, lost)
    await until(rig, "g1", "online")
    await pass_beats(rig, 3)
    assert (await nodes(rig))["g1"]["state"] == "online"
    runs, last = await rig.run(lost)
    for announcer in guarding.announcers:  # as when the process is frozen
        running, announcer._running = announcer._running, None
        assert running is not None
        running.cancel()
    (waiting,) = await rig.line_up(1)
    rig.clock.advance(6.0)
    known = await until(rig, "g1", "offline")
    assert "heartbeat" in known["last_error"]
    assert known["models"] == ["m"]
    await call.answer(OK)
    await held.reply()
    await (await other.next_call()).answer(OK)
    assert (await waiting.reply()).headers["x-forebay-node"] == "n1"
    await last.answer(OK)  # what runs there may finish
    assert (await runs.reply()).headers["x-forebay-node"] == "g1"


async def test_good_probes_alone_do_not_bring_a_silent_node_back_but_a_heartbeat_does(
    rig: Rig,
) -> None:
    node = await rig.node()
    await start(rig)
    assert (await hear(rig, url=node.url)).status == 201
    await until(rig, "g1", "online")
    rig.clock.advance(6.0)
    await until(rig, "g1", "offline")
    before = node.probes
    rig.clock.advance(20.0)
    await node.probed(before + 1)
    await settle(rig)
    assert (await nodes(rig))["g1"]["state"] == "offline"
    reply = await rig.get(CHAT, method="POST", body={"model": "m", "messages": []})
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")
    await hear(rig, url=node.url)
    await until(rig, "g1", "online")


async def test_a_node_that_is_never_heard_of_again_is_forgotten_with_its_models(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    await hear(rig, url=node.url)
    await until(rig, "g1", "online")
    rig.clock.advance(FORGOTTEN_S - 1.0)
    assert "g1" in await nodes(rig)
    rig.clock.advance(1.0)
    assert await nodes(rig) == {}
    reply = await rig.get(CHAT, method="POST", body={"model": "m", "messages": []})
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_heartbeats_tell_of_the_gpu_between_probes(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    await hear(rig, url=node.url, gpu_load=0.2, vram_used_bytes=1, vram_total_bytes=4)
    await until(rig, "g1", "online")
    probes = node.probes
    await hear(rig, url=node.url, gpu_load=0.9, vram_used_bytes=2, vram_total_bytes=4)
    assert (await nodes(rig))["g1"]["gpu_load"] == 0.9
    backend = rig.gateway.parts.nodes.get("g1")
    assert backend is not None
    assert (backend.vram_used_bytes, backend.vram_total_bytes) == (2, 4)
    assert node.probes == probes
    rig.clock.advance(5.0)
    await hear(rig, url=node.url, gpu_load=0.9, vram_used_bytes=2, vram_total_bytes=4)
    rig.clock.advance(5.0)  # a probe, which knows nothing of the GPU
    await node.probed(probes + 3)
    await settle(rig)
    assert (await nodes(rig))["g1"]["gpu_load"] == 0.9


async def test_a_change_that_a_guard_tells_of_is_looked_at_at_once(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    await hear(rig, url=node.url)
    await until(rig, "g1", "online")
    node.health = "loading"
    await hear(rig, url=node.url, state="loading")
    await until(rig, "g1", "loading")
    node.health = "ok"
    await hear(rig, url=node.url, state="busy")
    await until(rig, "g1", "online")


async def test_a_guard_that_stops_says_so_and_its_node_is_gone(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    guarding = await guard(rig, node)
    await until(rig, "g1", "online")
    client, call = await rig.run(node)
    stopping = asyncio.ensure_future(guarding.stop())
    await until(rig, "g1", "draining")
    await call.answer(OK)
    assert (await client.reply()).status == 200
    await stopping
    assert await nodes(rig) == {}


async def test_an_operator_s_drain_outlasts_the_guard_s_heartbeats(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    await hear(rig, url=node.url)
    await until(rig, "g1", "online")
    await rig.get("/admin/nodes/g1/drain", method="POST")
    await hear(rig, url=node.url)
    await hear(rig, url=node.url, state="draining")
    await hear(rig, url=node.url)
    assert (await nodes(rig))["g1"]["state"] == "draining"
    await rig.get("/admin/nodes/g1/resume", method="POST")
    await until(rig, "g1", "online")
    await hear(rig, url=node.url, state="draining")
    assert (await nodes(rig))["g1"]["state"] == "draining"
    await hear(rig, url=node.url, instance="instance-2")  # it has restarted after all
    await until(rig, "g1", "online")


async def test_a_goodbye_of_an_older_guard_does_not_take_the_newer_one_out(rig: Rig) -> None:
    await start(rig)
    await hear(rig)
    await hear(rig, instance="instance-2")
    gone = await rig.get("/guard/nodes/g1?instance=instance-1", HEADERS, "DELETE")
    assert gone.status == 404
    assert "g1" in await nodes(rig)
    assert (await rig.get("/guard/nodes/g1", {}, "DELETE")).status == 403
    gone = await rig.get("/guard/nodes/g1?instance=instance-2", HEADERS, "DELETE")
    assert (gone.status, await nodes(rig)) == (204, {})


async def test_a_gateway_that_restarts_has_its_guards_back_by_itself(rig: Rig) -> None:
    node = await rig.node()
    gateway = await start(rig)
    port = gateway.port
    guarding = await guard(rig, node)
    await until(rig, "g1", "online")
    await gateway.stop(0.0)
    for _ in range(3):
        rig.clock.advance(2.0)
        for _ in range(TURNS):
            if not guarding.announcers[0].episode.registered:
                break
            await asyncio.sleep(0)
    assert not guarding.announcers[0].episode.registered
    await start(rig, server={"port": port})
    for _ in range(TURNS):
        if "g1" in await nodes(rig):
            break
        rig.clock.advance(0.1)
    await until(rig, "g1", "online")
    assert guarding.announcers[0].episode.registered


async def test_a_node_that_a_reload_configures_takes_the_name_and_keeps_it(rig: Rig) -> None:
    guarded, configured = await rig.node(), await rig.node()
    await start(rig)
    await hear(rig, url=guarded.url)
    rig.given["nodes"] = [{"name": "g1", "url": configured.url}]
    rig.gateway.parts.reload()
    assert (await hear(rig, url=guarded.url)).status == 409
    rig.clock.advance(10.0)
    assert (await until(rig, "g1", "online"))["url"] == configured.url
