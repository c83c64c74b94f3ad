"""Nothing fails that could have waited: nodes that start, load, or are gone for a moment."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.settings import NodeSettings

from ..conftest import CHAT, OK
from ..jobs.job_steps import submit

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient

    from ..conftest import Rig

MINE = {"X-Request-Id": "mine"}
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


async def dead(rig: Rig, **options: Any) -> FakeNode:
    """Make a node that nobody reaches before it listens."""
    node = await rig.node(**options)
    await node.stop_listening()
    return node


async def code(client: RawClient) -> tuple[int, str]:
    reply = await client.reply()
    return reply.status, reply.json["error"]["code"]


async def why(rig: Rig) -> tuple[str, str]:
    seen = (await rig.get("/v1/queue/mine")).json
    return seen["state"], seen["reason"]


async def serve(rig: Rig, node: FakeNode, *clients: RawClient, name: str = "n1") -> None:
    """Answer the calls of these clients, once the node is seen to be up."""
    await rig.until_node(name, "online")
    for _ in clients:
        await (await node.next_call()).answer(OK)
    for client in clients:
        assert (await client.reply()).status == 200


# -- the start


async def test_a_request_waits_for_a_node_that_was_not_up_yet_when_the_gateway_started(
    rig: Rig,
) -> None:
    node = await dead(rig)
    await rig.start(node)
    (client,) = await rig.line_up(1, headers=MINE)
    assert await why(rig) == ("waiting", "a node that may serve it has not answered yet")
    await node.listen()
    await serve(rig, node, client)


async def test_an_unknown_model_is_not_found_only_when_every_node_has_said_what_it_has(
    rig: Rig,
) -> None:
    up, late = await rig.node(models=["a"]), await dead(rig, models=["b"])
    await rig.start(up, late)
    (client,) = await rig.line_up(1, model="c")
    await late.listen()
    await rig.until_node("n2", "online")
    assert await code(client) == (404, "model_not_found")
    assert await code(await rig.ask("c")) == (404, "model_not_found")


async def test_a_node_that_never_answers_is_named_after_its_time(rig: Rig) -> None:
    up, late = await rig.node(models=["a"]), await dead(rig)
    await rig.start(up, late)
    await rig.line_up(1, model="c")
    rig.clock.advance(30.0)
    reply = await (await rig.ask("c")).reply()
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")
    assert "n2" in reply.json["error"]["message"]
    assert reply.headers["x-should-retry"] == "true"
    assert (await rig.queue())["waiting"] == 1


async def test_a_node_whose_models_are_configured_keeps_nobody_waiting_for_others(
    rig: Rig,
) -> None:
    node = await dead(rig)
    listed = [{"name": "n1", "url": node.url, "models": ["m"]}]
    await rig.start(nodes=listed)
    assert await code(await rig.ask("other")) == (404, "model_not_found")
    (client,) = await rig.line_up(1)
    await node.listen()
    await serve(rig, node, client)


async def test_a_node_that_is_added_is_waited_for_from_then_on(rig: Rig) -> None:
    node = await dead(rig, models=["new"])
    await rig.start(await rig.node(models=["a"]))
    rig.clock.advance(100.0)
    body = json.dumps({"name": "n2", "url": node.url}).encode()
    await rig.get("/admin/nodes", method="POST", body=body)
    (client,) = await rig.line_up(1, model="new")
    await node.listen()
    await serve(rig, node, client, name="n2")


async def test_a_gateway_is_not_ready_before_every_node_was_asked(rig: Rig) -> None:
    up, slow = await rig.node(), await rig.node()
    slow.health = "hang"
    rig.given = {
        "nodes": [{"name": "n1", "url": up.url}, {"name": "n2", "url": slow.url}],
        "server": {"port": 0},
        "jobs": {"database": f"sqlite:///{rig.folder}/jobs.db"},
    }
    rig.gateway = rig.make(rig.read_settings())
    rig.stack.push_async_callback(rig.gateway.stop, 0.0)
    starting = asyncio.create_task(rig.gateway.start(probe_s=1000.0))
    await slow.probed(1)
    await up.probed(3)
    reply = await rig.get("/ready")
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")
    assert "n2" in reply.json["error"]["message"]
    slow.drop_connections(reset=True)
    await starting
    assert (await rig.get("/ready")).json == {"status": "ready"}


async def test_a_gateway_is_not_ready_while_its_own_model_is_started_and_streams_stay_awake(
    rig: Rig,
) -> None:
    gateway = await rig.start()
    gateway.parts.nodes.expecting = True
    assert (await rig.get("/ready")).json["error"]["code"] == "model_loading"
    (client,) = await rig.line_up(1, stream=True, headers=MINE)
    assert (await why(rig))[0] == "waiting"
    rig.clock.advance(15.0)
    assert (await client.head()).status == 200
    assert b": queued position=1" in (await client.chunk() or b"")
    node = await rig.node()
    gateway.parts.nodes.add(NodeSettings(name="embedded", url=node.url))
    await rig.until_node("embedded", "online")
    gateway.parts.nodes.expecting = False
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert (await rig.get("/ready")).status == 200


# -- a restart


async def test_a_node_that_restarts_costs_nobody_an_error(rig: Rig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    clients = [await rig.ask() for _ in range(2)]
    calls = [await node.next_call() for _ in clients]
    clients += await rig.line_up(2)
    await node.stop_listening()
    for call in calls:
        call.reset()
    await rig.until_node("n1", "offline")
    clients += await rig.line_up(3, headers={})
    await node.listen()
    await serve(rig, node, *clients)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_node_that_dies_with_more_in_flight_than_the_budget_costs_nobody_an_error(
    rig: Rig, is_busy: bool
) -> None:
    node = await rig.node(slots=33)
    await rig.start(node)
    clients = [await rig.ask() for _ in range(32)]
    for _ in clients:
        await node.next_call()
    if is_busy:  # then each of the others might have itself to blame
        answered = await rig.ask()
        await (await node.next_call()).answer(OK)
        assert (await answered.reply()).status == 200
    await node.stop_listening()
    node.drop_connections(reset=True)
    await rig.wait_until("waiting", 32)
    await rig.until_node("n1", "offline")
    await node.listen()
    await serve(rig, node, *clients)


async def test_who_asks_for_a_node_that_was_gone_is_told_why_it_waits(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await node.stop_listening()
    await rig.until_node("n1", "offline")
    (client,) = await rig.line_up(1, headers=MINE)
    assert await why(rig) == ("waiting", "no node that serves its model is up")
    rig.clock.advance(60.0)
    assert await code(client) == (503, "no_node")


@pytest.mark.parametrize(
    ("queue", "more"),
    [
        ({"enabled": False}, {}),
        ({"max_size": 0}, {}),
        ({"stream": "reject"}, {"stream": True}),
        ({}, {"headers": {"X-Forebay-Max-Wait": "0"}}),
    ],
)
async def test_who_may_not_wait_is_refused_at_once(
    rig: Rig, queue: dict[str, Any], more: dict[str, Any]
) -> None:
    node = await rig.node()
    await rig.start(node, queue=queue)
    await node.stop_listening()
    await rig.until_node("n1", "offline")
    assert await code(await rig.ask(**more)) == (503, "no_node")


async def test_a_reload_changes_how_long_a_node_is_waited_for(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await node.stop_listening()
    await rig.until_node("n1", "offline")
    rig.given["queue"] = {"offline_wait_seconds": 0}
    assert await rig.gateway.parts.live.reload() == ["queue.offline_wait_seconds"]
    assert await code(await rig.ask()) == (503, "no_node")


# -- loading


async def test_requests_wait_for_a_node_that_loads_with_an_estimate_from_its_last_load(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    begin_s = rig.clock.monotonic_s()
    node.health = "loading"
    await rig.until_node("n1", "loading")
    rig.clock.advance(6.0)
    (client,) = await rig.line_up(1, headers=MINE)
    assert await why(rig) == ("waiting", "the node that serves its model is loading it")
    node.health = "ok"
    await serve(rig, node, client)
    loading_s = rig.clock.monotonic_s() - begin_s  # the clock goes on with every look at the node
    node.health = "loading"
    await rig.until_node("n1", "loading")
    (client,) = await rig.line_up(1, headers=MINE)
    seen = (await rig.get("/v1/queue/mine")).json
    assert 6.0 <= seen["estimated_wait_seconds"]["p50"] <= loading_s
    node.health = "ok"
    await serve(rig, node, client)


async def test_a_503_that_says_loading_lowers_no_slots_and_is_no_failure(rig: Rig) -> None:
    node = await rig.node(slots=4)
    gateway = await rig.start(node)
    (backend,) = gateway.parts.nodes
    client, call = await rig.run(node, headers=MINE)
    await call.answer(LOADING, 503)
    await rig.wait_until("waiting", 1)
    assert await why(rig) == ("waiting", "the node that serves its model is loading it")
    assert (backend.told.state, backend.told.slots, backend.failures) == ("loading", 4, {})
    await serve(rig, node, client)
    assert (backend.told.state, backend.told.slots) == ("online", 4)
    assert len(node.calls) == 2


async def test_a_node_that_only_its_requests_find_loading_is_asked_once_a_second(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    for tries in range(1, 4):
        await call.answer(LOADING, 503)
        await rig.wait_until("waiting", 1)
        assert len(node.calls) == tries
        rig.clock.advance(1.0)
        call = await node.next_call()
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_503_that_says_nothing_of_loading_is_a_node_that_is_busy(rig: Rig) -> None:
    node = await rig.node(slots=4)
    gateway = await rig.start(node)
    (backend,) = gateway.parts.nodes
    client, call = await rig.run(node)
    await call.answer({"error": "server busy, please try again"}, 503)
    await rig.wait_until("waiting", 1)
    assert backend.told.state == "online"
    assert (await gateway.parts.queue_observer.snapshot()).nodes[0].slots == 3
    rig.clock.advance(1.0)
    await serve(rig, node, client)


# -- live calls before jobs


@pytest.mark.parametrize("queue", [{"enabled": False}, {"max_size": 0}, {"stream": "reject"}])
async def test_a_live_call_that_may_not_wait_waits_for_a_job_to_end(
    rig: Rig, queue: dict[str, Any]
) -> None:
    node = await rig.node()
    await rig.start(node, queue=queue)
    await submit(rig)
    job = await node.next_call()
    (client,) = await rig.line_up(1, stream=True)
    refused = await code(await rig.ask(stream=True))
    assert refused in ((503, "queue_disabled"), (503, "stream_not_queued"))
    await job.answer(OK)
    call = await node.next_call()
    assert call.path == CHAT
    await call.start_stream()
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert (await client.head()).status == 200


async def test_a_model_is_not_unknown_while_its_node_s_settings_change(rig: Rig) -> None:
    node = await rig.node(slots=2)
    gateway = await rig.start(node)
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    changed = backend.settings.model_copy(update={"slots": 1})
    gateway.parts.nodes.replace(changed)
    client = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200


async def test_a_drained_node_stays_drained_when_its_settings_change(rig: Rig) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    backend.drain()
    after = gateway.parts.nodes.replace(backend.settings.model_copy(update={"slots": 3}))
    assert after.told.state == "draining"


async def test_a_model_may_still_come_while_nodes_are_being_started(rig: Rig) -> None:
    gateway = await rig.start()
    gateway.parts.nodes.expecting = True
    (early,) = await rig.line_up(1)
    gateway.parts.nodes.expecting = False
    assert (await early.reply()).json["error"]["code"] == "model_not_found"
    assert (await (await rig.ask()).reply()).status == 404
