"""What a review found by trying: each of these once lost a slot, an answer or a node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from ..conftest import Rig

OK: dict[str, object] = {"choices": []}
EMBEDDINGS = "/v1/embeddings"


async def test_a_body_with_a_number_of_any_length_is_rewritten_like_any_other(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"nick": "m"}})
    rest = b',"x":' + b"1" * 70_000 + b"}"
    client = await rig.client()
    await client.post("/v1/chat/completions", b'{"model":"nick"' + rest)
    call = await node.next_call()
    assert call.body == b'{"model":"m"' + rest
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_sink_that_fails_gives_its_slot_back_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.gateway.hot.client_sink import ClientSink

    node = await rig.node()
    await rig.start(node)
    broken = await rig.ask()
    call = await node.next_call()

    def fail(_: object) -> None:
        raise RuntimeError("broken on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(ClientSink, "end", fail)
        await call.answer(OK)
        await rig.wait_until("processing", 0)
    broken.close()
    after = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await after.reply()).status == 200


async def test_pipelined_requests_are_answered_in_their_order(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    for mark in ("one", "two", "three"):
        await client.post("/v1/chat/completions", {"model": "m", "mark": mark})
    for mark in ("one", "two", "three"):
        call = await node.next_call()
        assert call.json["mark"] == mark
        await call.answer({"mark": mark})
        assert (await client.reply()).json == {"mark": mark}


async def test_a_client_that_asks_for_pages_and_reads_none_is_held_back(rig: Rig) -> None:
    await rig.start(await rig.node())
    client = await rig.client(rcvbuf=4096)
    client.stop_reading()
    for _ in range(400):
        await client.get("/openapi.json")
    await rig.wait_until("waiting", 0)
    (connection,) = (c for c in rig.gateway._server.connections if c.early or c._slow)
    assert connection.transport.get_write_buffer_size() < 1_000_000
    client.abort()


async def test_a_stream_asked_of_a_route_without_streams_harms_no_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    for _ in range(3):
        client = await rig.ask(path=EMBEDDINGS, stream=True)
        await (await node.next_call()).answer({"data": []})
        assert (await client.reply()).status == 200
    assert rig.gateway.parts.nodes.any_up()


async def test_a_node_that_answers_a_stream_in_one_piece_is_passed_on(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).json == OK


async def test_a_stream_with_a_length_that_breaks_does_not_confuse_the_next_answer(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    call = await node.next_call()
    kind = b"content-type: text/event-stream\r\ncontent-length: 5000\r\n\r\n"
    await call.write(b"HTTP/1.1 200 OK\r\n" + kind + b"data: 1\n\n")
    head = await client.head()
    assert head.headers["transfer-encoding"] == "chunked"
    call.reset()
    pieces = []
    while (piece := await client.chunk()) is not None:
        pieces.append(piece)
    assert b"node_failed" in pieces[-1]
    await client.post("/v1/chat/completions", {"model": "m"})
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).json == OK


async def test_an_answer_without_content_is_no_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client = await rig.ask()
    call = await node.next_call()
    await call.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (await client.reply()).status == 502


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


async def test_a_node_that_is_busy_again_and_again_is_cut_to_one_slot(rig: Rig) -> None:
    node = await rig.node(slots=6)
    gateway = await rig.start(node, nodes=[{"name": "n1", "url": node.url, "slots": 6}])
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    told = []
    for _ in range(7):
        backend.busy("m")
        backend._tell(backend.health.changed(rig.clock.monotonic_s()))
        told.append(backend.told.slots)
    assert told == [5, 4, 3, 2, 1, 1, 1]


async def test_busy_answers_use_up_no_attempts(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 2})
    client = await rig.ask()
    for _ in range(2):
        await (await node.next_call()).answer({}, status=429)
        await rig.wait_until("waiting", 1)
        rig.clock.advance(2.0)
    (await node.next_call()).reset()
    again = asyncio.ensure_future(node.next_call())
    while not again.done():  # once a probe has found the node well
        rig.clock.advance(0.5)
        await rig.queue()
    await again.result().answer(OK)
    assert (await client.reply()).status == 200


async def test_a_model_that_all_its_nodes_deny_is_their_404(rig: Rig) -> None:
    nodes = [await rig.node(), await rig.node()]
    await rig.start(*nodes)
    client = await rig.ask()
    await (await nodes[0].next_call()).answer({"error": "gone"}, status=404)
    await (await nodes[1].next_call()).answer({"error": "gone"}, status=404)
    assert (await client.reply()).status == 404


async def test_every_line_of_forwarded_for_counts(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, server={"trusted_proxies": ["127.0.0.1/32"]})
    client = await rig.client()
    body = b'{"model":"m"}'
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    call = await node.next_call()
    (exchange,) = rig.gateway.parts.relay.exchanges.values()
    assert exchange.call.arrival.user == "9.9.9.9"
    await call.answer(OK)


async def test_an_endless_line_of_early_bytes_ends_the_connection(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    await client.send(b"x" * 200_000)
    await call.gone()
    await rig.wait_until("processing", 0)


async def test_a_wrong_key_is_refused_before_a_large_body_is_sent(rig: Rig) -> None:
    await rig.start(
        await rig.node(),
        keys=[{"name": "k", "key_env": "KEY", "user": "u"}],
        environ={"KEY": "right"},
    )
    client = await rig.client()
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
        b"Content-Length: 30000000\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await client.head()).status == 401


async def test_a_page_that_cors_allows_is_no_admin(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"cors_origins": ["http://app.test"]})
    client = await rig.client()
    await client.get("/admin/nodes", {"Origin": "http://app.test"})
    assert (await client.reply()).status == 403


async def test_a_revoked_key_s_request_does_not_start_again_elsewhere(rig: Rig) -> None:
    nodes = [await rig.node(), await rig.node()]
    keys = [{"name": "k", "key_env": "KEY", "user": "u"}, {"name": "b", "key_env": "B"}]
    environ = {"KEY": "secret", "B": "other"}
    gateway = await rig.start(*nodes, keys=keys, environ=environ)
    client = await rig.ask(headers={"Authorization": "Bearer secret"})
    call = await nodes[0].next_call()
    kept = gateway.parts.keys.named("b")
    assert kept is not None
    gateway.parts._change_keys([kept])
    call.reset()
    assert (await client.reply()).status == 401
    assert not nodes[1].calls


async def test_a_model_may_still_come_while_nodes_are_being_started(rig: Rig) -> None:
    gateway = await rig.start()
    gateway.parts.nodes.expecting = True
    (early,) = await rig.line_up(1)
    gateway.parts.nodes.expecting = False
    assert (await early.reply()).json["error"]["code"] == "model_not_found"
    assert (await (await rig.ask()).reply()).status == 404
