"""Questions that take no slot: tokens, and what a model is."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from forebay import __version__
from forebay.gateway.routes.model_queries import BACKOFF_S

from ..conftest import OK
from ..hot.test_users_and_keys import A, B, key, start

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig

TOKENIZE, COUNT, SHOW = "/tokenize", "/v1/messages/count_tokens", "/api/show"
TOKENS = {"tokens": [1, 2, 3]}


async def ask(rig: Rig, path: str, body: bytes, headers: dict[str, str] | None = None) -> Any:
    client = await rig.client()
    await client.post(path, body, headers or {})
    return client


def code(reply: Reply) -> tuple[int, str]:
    error = reply.json["error"]
    return reply.status, error["code"] if isinstance(error, dict) else reply.json["code"]


@pytest.mark.parametrize("path", [TOKENIZE, "/detokenize", COUNT])
async def test_it_is_answered_while_every_slot_is_taken_and_others_wait(
    rig: Rig, path: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    _, running = await rig.run(node)
    await rig.line_up(1)
    body = b'\xef\xbb\xbf{"model":"m",  "content": "hello"}'
    client = await ask(rig, path, body, {"anthropic-version": "2023-06-01", "x-request-id": "me"})
    call = await node.next_call()
    assert (call.path, call.body) == (path, body[3:])
    assert (call.headers["anthropic-version"], call.headers["x-request-id"]) == ("2023-06-01", "me")
    await call.answer(TOKENS)
    reply = await client.reply()
    assert (reply.status, reply.json, reply.headers["x-forebay-node"]) == (200, TOKENS, "n1")
    assert (reply.headers["x-request-id"], reply.headers["x-queue-status"]) == ("me", "direct")
    assert (await rig.queue())["waiting"] == 1
    await running.answer({"choices": []})
    await (await node.next_call()).answer({"choices": []})


@pytest.mark.parametrize("path", ["/tokenize/", "/v1/tokenize", "/v1/v1/messages/count_tokens"])
async def test_its_path_may_be_mistyped(rig: Rig, path: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await ask(rig, path, b'{"model": "m"}')
    call = await node.next_call()
    assert call.path in (TOKENIZE, COUNT)
    await call.answer(TOKENS)
    assert (await client.reply()).status == 200


async def test_without_a_model_it_goes_to_the_only_one(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"other-name": "m"}})
    client = await ask(rig, TOKENIZE, b'{"content": "hello"}')
    call = await node.next_call()
    assert call.body == b'{"content": "hello"}'
    await call.answer(TOKENS)
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("path", [TOKENIZE, COUNT])
async def test_without_a_model_where_there_are_several_it_is_refused(rig: Rig, path: str) -> None:
    await rig.start(await rig.node(models=("a", "b")))
    reply = await (await ask(rig, path, b"{}")).reply()
    assert code(reply) == (400, "invalid_request")
    assert reply.json["error"]["param"] == "model"


async def test_an_alias_is_resolved_and_a_key_may_not_ask_of_other_models(rig: Rig) -> None:
    node = await rig.node(models=("m", "n"))
    key = {"name": "a", "key_env": "A", "models": ["x"]}
    aliases = {"x": "m"}
    await rig.start(node, keys=[key], environ={"A": "sk-a"}, models={"aliases": aliases})
    own = {"authorization": "Bearer sk-a"}
    client = await ask(rig, TOKENIZE, b'{"content": "hello", "model": "x"}', own)
    call = await node.next_call()
    assert call.body == b'{"content": "hello", "model": "m"}'
    assert "authorization" not in call.headers
    await call.answer(TOKENS)
    assert (await client.reply()).status == 200
    assert code(await (await ask(rig, TOKENIZE, b'{"model": "n"}', own)).reply()) == (
        403,
        "forbidden",
    )
    assert (await (await ask(rig, TOKENIZE, b'{"model": "x"}')).reply()).status == 401
    client = await ask(rig, TOKENIZE, b"{}", own)  # the only one of this key
    await (await node.next_call()).answer(TOKENS)
    assert (await client.reply()).status == 200
    rig.headers = own


@pytest.mark.parametrize("name", ["model", "name"])
async def test_ollama_shows_a_model_by_its_short_and_its_old_name(rig: Rig, name: str) -> None:
    node = await rig.node(kind="ollama", models=("gemma3:latest",))
    await rig.start(node)
    client = await ask(rig, SHOW, f'{{"{name}": "gemma3"}}'.encode())
    call = await node.next_call()
    assert call.json == {name: "gemma3:latest"}
    await call.answer({"details": {}})
    assert (await client.reply()).json == {"details": {}}


async def test_unknown_models_and_families_are_told_as_elsewhere(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    unknown = await (await ask(rig, TOKENIZE, b'{"model": "mm"}')).reply()
    assert code(unknown) == (404, "model_not_found")
    other = await (await ask(rig, SHOW, b'{"model": "m"}')).reply()
    assert code(other) == (404, "route_not_supported")
    assert isinstance(other.json["error"], str)
    twice = await (await ask(rig, COUNT, b'{"model": "m", "model": "n"}')).reply()
    assert code(twice) == (400, "invalid_request")
    assert twice.json["error"]["type"] == "invalid_request_error"
    assert node.calls == []


async def test_a_node_without_the_route_is_passed_over_and_none_is_told(rig: Rig) -> None:
    without, having = await rig.node(), await rig.node()
    await rig.start(without, having)
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    await (await without.next_call()).answer({"detail": "Not Found"}, 404)
    await (await having.next_call()).answer(TOKENS)
    assert (await client.reply()).headers["x-forebay-node"] == "n2"
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    await (await having.next_call()).answer({"detail": "Not Found"}, 404)
    assert code(await client.reply()) == (404, "route_not_supported")
    again = await (await ask(rig, TOKENIZE, b'{"model": "m"}')).reply()
    assert code(again) == (404, "route_not_supported")
    assert (len(without.calls), len(having.calls)) == (1, 2)


async def test_a_node_that_dies_or_is_busy_is_passed_over(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    (await first.next_call()).reset()
    (await first.next_call()).reset()  # on a new connection
    await (await second.next_call()).answer({"error": "busy"}, 503)
    await rig.queue()
    rig.clock.advance(BACKOFF_S)
    await (await first.next_call()).answer(TOKENS)
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_what_a_node_says_passes_through(rig: Rig, status: int) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    await (await node.next_call()).answer({"error": "no"}, status)
    reply = await client.reply()
    assert (reply.status, reply.json) == (status, {"error": "no"})


async def test_it_waits_for_a_node_that_is_loading(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    node.health = "loading"
    await rig.until_node("n1", "loading")
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    await rig.queue()
    assert node.calls == []
    node.health = "ok"
    await rig.until_node("n1", "online")
    await (await node.next_call()).answer(TOKENS)
    assert (await client.reply()).status == 200


async def test_it_waits_no_longer_than_the_caller_says(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    node.health = "loading"
    await rig.until_node("n1", "loading")
    client = await ask(rig, TOKENIZE, b'{"model": "m"}', {"x-forebay-max-wait": "5"})
    await rig.queue()
    rig.clock.advance(5.0)
    reply = await client.reply()
    assert code(reply) == (503, "no_node")
    assert "retry-after" in reply.headers


async def test_a_client_that_leaves_takes_its_question_along(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    call = await node.next_call()
    client.close()
    await call.gone()


async def test_gzip_is_inflated_here_too_within_its_bound(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, server={"body_max_bytes": 100_000})
    coded = {"content-encoding": "gzip"}
    body = b'{"model": "m", "content": "' + b"x" * 50_000 + b'"}'
    client = await ask(rig, TOKENIZE, gzip.compress(body), coded)
    call = await node.next_call()
    assert call.body == body
    await call.answer(TOKENS)
    assert (await client.reply()).status == 200
    bomb = await (await ask(rig, TOKENIZE, gzip.compress(b" " * 1_000_000), coded)).reply()
    assert code(bomb) == (413, "body_too_large")
    other = await (await ask(rig, TOKENIZE, b"x", {"content-encoding": "br"})).reply()
    assert code(other) == (400, "unsupported")
    assert rig.gateway.parts.bodies.used_bytes == 0


async def test_they_are_counted(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await ask(rig, TOKENIZE, b'{"model": "m"}')
    await (await node.next_call()).answer(TOKENS)
    await client.reply()
    await (await ask(rig, TOKENIZE, b"[]")).reply()
    text = (await rig.get("/metrics")).body.decode()
    assert 'forebay_requests_total{outcome="served",route="/tokenize"} 1.0' in text
    assert 'forebay_requests_total{outcome="invalid_request",route="/tokenize"} 1.0' in text


async def test_they_count_in_the_rate_of_their_key_and_do_not_wait_for_it(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", requests_per_minute=3), key("b")])
    _, running = await rig.run(node, headers=A)
    for path in (TOKENIZE, COUNT):
        client = await ask(rig, path, b'{"model": "m"}', A)
        await (await node.next_call()).answer(TOKENS)
        assert (await client.reply()).status == 200
    [late] = await rig.line_up(1, headers=A)  # it is first to get what the rate gives
    refused = await (await ask(rig, "/detokenize", b'{"model": "m"}', A)).reply()
    assert (*code(refused), refused.headers["retry-after"]) == (429, "rate_limited", "40")
    client = await ask(rig, TOKENIZE, b'{"model": "m"}', B)
    await (await node.next_call()).answer(TOKENS)
    assert (await client.reply()).status == 200
    await running.answer(OK)
    rig.clock.advance(20.1)
    await (await node.next_call()).answer(OK)
    assert (await late.reply()).status == 200
    assert not rig.gateway.parts.relay.reservations


async def test_the_version_is_ours_and_what_runs_is_a_union(rig: Rig) -> None:
    one = await rig.node(kind="ollama", models=("a", "b"))
    two = await rig.node(kind="ollama", models=("b", "c"))
    other = await rig.node(models=("m",))
    one.loaded, two.loaded = ("a", "b"), ("b",)
    await rig.start(one, two, other)
    assert (await rig.get("/api/version")).json == {"version": __version__}
    running = (await rig.get("/api/ps")).json["models"]
    assert [model["name"] for model in running] == ["a", "b"]
    two.loaded = ("c",)
    rig.clock.advance(1.0)
    running = (await rig.get("/api/ps/")).json["models"]
    assert [model["model"] for model in running] == ["a", "b", "c"]


async def test_what_nodes_say_of_a_model_is_kept_in_the_list(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"nick": "m"}})
    [backend] = rig.gateway.parts.nodes
    backend.about = {"m": {"created": 7, "owned_by": "vllm", "max_model_len": 4096, "size": 3}}
    for name in ("m", "nick"):
        card = (await rig.get(f"/v1/models/{name}")).json
        said = {"created": 7, "owned_by": "vllm", "max_model_len": 4096}
        assert card == {"id": name, "object": "model", **said}
    for path in ("/v1/models/", "/v1/v1/models", "/models", "/openai/models"):
        listed = (await rig.get(path)).json["data"]
        assert [card["id"] for card in listed] == ["m", "nick"]
