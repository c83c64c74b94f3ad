"""A route that not every node has: the request goes where it is, or is told that it is nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.nodes.backend import ABSENCE_S

from ..conftest import CHAT

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig

RERANK = "/v1/rerank"
NOT_THERE = {"detail": "Not Found"}
SAID = [(404, NOT_THERE), (404, b"404 page not found"), (405, {}), (501, {"error": "not built"})]


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json["error"]["code"]


@pytest.mark.parametrize(("status", "body"), SAID)
async def test_a_route_that_no_node_has_is_told_so_and_the_next_one_at_once(
    rig: Rig, status: int, body: object
) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=RERANK)
    await call.answer(body, status)
    reply = await client.reply()
    assert code(reply) == (404, "route_not_supported")
    assert RERANK in reply.json["error"]["message"]
    assert f"answered {status}" in reply.json["error"]["cause"]
    assert reply.headers["x-should-retry"] == "false"
    again = await (await rig.ask(path=RERANK)).reply()
    assert code(again) == (404, "route_not_supported")
    assert len(node.calls) == 1
    client, call = await rig.run(node)  # other routes go on
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200


async def test_it_goes_to_the_node_that_has_the_route_and_costs_no_retry(rig: Rig) -> None:
    without, having = await rig.node(), await rig.node()
    await rig.start(without, having, retry={"attempts": 1})
    for _ in range(30):  # more than the budget of retries would allow
        client = await rig.ask(path=RERANK)
        while not (without.running or having.running):
            await rig.queue()
        if without.running:
            await (await without.next_call()).answer(NOT_THERE, 404)
        await (await having.next_call()).answer({"results": []})
        reply = await client.reply()
        assert (reply.status, reply.headers["x-forebay-node"]) == (200, "n2")
    metrics = (await rig.get("/metrics")).body.decode()
    assert "forebay_retries_total 0.0" in metrics
    states = {node["name"]: node["state"] for node in (await rig.get("/admin/nodes")).json["data"]}
    assert states == {"n1": "online", "n2": "online"}
    assert 'forebay_node_failures_total{kind="' not in metrics


async def test_what_was_learned_is_forgotten_after_a_while(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=RERANK)
    await call.answer(NOT_THERE, 404)
    await client.reply()
    rig.clock.advance(ABSENCE_S)
    client, call = await rig.run(node, path=RERANK)
    await call.answer({"results": []})
    assert (await client.reply()).status == 200


async def test_a_node_that_was_away_may_have_come_back_with_the_route(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=RERANK)
    await call.answer(NOT_THERE, 404)
    await client.reply()
    node.health = "error"
    await rig.until_node("n1", "offline")
    node.health = "ok"
    await rig.until_node("n1", "online")
    client, call = await rig.run(node, path=RERANK)
    await call.answer({"results": []})
    assert (await client.reply()).status == 200


async def test_what_is_missing_for_one_model_may_be_there_for_another(rig: Rig) -> None:
    node = await rig.node(models=("a", "b"))
    await rig.start(node)
    client, call = await rig.run(node, model="a", path="/v1/embeddings")
    await call.answer({"error": "not built"}, 501)
    assert code(await client.reply()) == (404, "route_not_supported")
    client, call = await rig.run(node, model="b", path="/v1/embeddings")
    await call.answer({"data": []})
    assert (await client.reply()).status == 200


async def test_a_fallback_may_have_the_route(rig: Rig) -> None:
    node = await rig.node(models=("a", "b"))
    await rig.start(node, models={"fallbacks": {"a": ["b"]}})
    client, call = await rig.run(node, model="a", path=RERANK)
    await call.answer(NOT_THERE, 404)
    assert code(await client.reply()) == (404, "route_not_supported")
    client, call = await rig.run(node, model="a", path=RERANK)
    await call.answer({"results": []})
    assert (await client.reply()).status == 200


async def test_a_stream_that_was_promised_is_told_in_the_stream(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 1.0})
    _, running = await rig.run(node)
    [waiting] = await rig.line_up(1, path=CHAT, stream=True)
    rig.clock.advance(1.0)
    assert (await waiting.head()).status == 200
    await running.answer({"choices": []})
    await (await node.next_call()).answer({"detail": "Not Found"}, 404)
    text = b""
    while (piece := await waiting.chunk()) is not None:
        text += piece
    assert b'"code":"route_not_supported"' in text
    assert b"[DONE]" not in text


async def test_a_404_for_the_model_passes_through_as_before(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=RERANK)
    await call.answer({"error": "The model `m` does not exist."}, 404)
    reply = await client.reply()
    assert (reply.status, reply.json) == (404, {"error": "The model `m` does not exist."})
    client, call = await rig.run(node, path=RERANK)
    await call.answer({"results": []})
    assert (await client.reply()).status == 200


async def test_a_model_that_all_its_nodes_deny_is_their_404(rig: Rig) -> None:
    nodes = [await rig.node(), await rig.node()]
    await rig.start(*nodes)
    client = await rig.ask()
    await (await nodes[0].next_call()).answer({"error": "gone"}, status=404)
    await (await nodes[1].next_call()).answer({"error": "gone"}, status=404)
    assert (await client.reply()).status == 404
