"""Heartbeats of guards at a gateway: heard, missed, coming back, and the last one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.gateway.fleet.guarded_nodes import FORGOTTEN_S, FOUND_S

from ..conftest import CHAT, OK
from .guard_steps import HEADERS, TURNS, guard, hear, nodes, pass_beats, settle, start, until

if TYPE_CHECKING:
    from ..conftest import Rig


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
    rig.clock.advance(30.0)
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


async def test_the_room_that_a_guard_tells_of_is_shown(rig: Rig) -> None:
    node = await rig.node()
    await start(rig)
    sample = b'forebay_node_kv_free_tokens{node="g1"} '
    await hear(rig, url=node.url)
    assert (await until(rig, "g1", "online"))["kv_free_tokens"] is None
    assert sample not in (await rig.get("/metrics")).body
    await hear(rig, url=node.url, kv_free_tokens=5000)
    assert (await nodes(rig))["g1"]["kv_free_tokens"] == 5000
    assert sample + b"5000.0" in (await rig.get("/metrics")).body
    await hear(rig, url=node.url, kv_free_tokens=0)
    assert (await nodes(rig))["g1"]["kv_free_tokens"] == 0
    await hear(rig, url=node.url)
    assert (await nodes(rig))["g1"]["kv_free_tokens"] is None


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
            if not guarding.announcers[0].registration.registered:
                break
            await asyncio.sleep(0)
    assert not guarding.announcers[0].registration.registered
    await start(rig, server={"port": port})
    for _ in range(TURNS):
        if "g1" in await nodes(rig):
            break
        rig.clock.advance(0.1)
    await until(rig, "g1", "online")
    assert guarding.announcers[0].registration.registered


async def test_a_node_that_a_reload_configures_takes_the_name_and_keeps_it(rig: Rig) -> None:
    guarded, configured = await rig.node(), await rig.node()
    await start(rig)
    await hear(rig, url=guarded.url)
    rig.given["nodes"] = [{"name": "g1", "url": configured.url}]
    await rig.gateway.parts.live.reload()
    assert (await hear(rig, url=guarded.url)).status == 409
    rig.clock.advance(10.0)
    assert (await until(rig, "g1", "online"))["url"] == configured.url


async def test_requests_wait_after_the_start_until_guards_had_time_to_find_the_gateway(
    rig: Rig,
) -> None:
    await start(rig)
    body = {"model": "m", "messages": []}

    async def asked(path: str, body: dict[str, object]) -> tuple[int, str]:
        client = await rig.client()
        await client.post(path, body)
        reply = await client.reply()
        return reply.status, reply.json.get("error", {}).get("code", "")

    (waiting,) = await rig.line_up(1)
    assert await asked("/jobs", {"type": "chat", "params": body}) == (202, "")
    rig.clock.advance(FOUND_S)
    assert (await waiting.reply()).json["error"]["code"] == "model_not_found"
    assert await asked(CHAT, {**body}) == (404, "model_not_found")
    again = {"type": "chat", "params": body, "job_id": 2}
    assert await asked("/jobs", again) == (404, "model_not_found")


async def test_a_request_waits_until_the_next_heartbeat_says_that_the_cache_has_room(
    rig: Rig,
) -> None:
    node = await rig.node(slots=4)
    node.kv_free_tokens = 1
    await start(rig)
    await guard(rig, node)
    await until(rig, "g1", "online")
    await pass_beats(rig, 1)
    running = [await rig.run(node)]  # nothing else runs there
    (waiting,) = await rig.line_up(1)
    await pass_beats(rig, 1)
    assert (await rig.queue())["waiting"] == 1
    node.kv_free_tokens = 1_000_000
    await pass_beats(rig, 1)
    running.append((waiting, await node.next_call()))
    running.append(await rig.run(node))
    for client, call in running:
        await call.answer(OK)
        assert (await client.reply()).status == 200


async def test_a_guard_lets_through_what_some_models_have_for_themselves(rig: Rig) -> None:
    node = await rig.node(models=["m", "bge-m3"])
    await start(rig)
    guarding = await guard(rig, node, slots=1, model_slots={"bge-*": 2})
    await until(rig, "g1", "online")
    shown = (await nodes(rig))["g1"]
    assert (shown["slots"], shown["slots_reason"]) == (3, "2 of them for bge-* alone")
    running = [await rig.run(node, model=model) for model in ("m", "bge-m3", "bge-m3")]
    assert (guarding.slots.in_flight, guarding.slots.size) == (3, 3)
    for client, call in running:
        await call.answer(OK)
        assert (await client.reply()).headers["x-forebay-node"] == "g1"
