"""Paths as clients and people write them, and what a node is asked for then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.hot.paths import PATH_BYTES_MAX, find_route

if TYPE_CHECKING:
    from ..conftest import Rig

CHAT = "/v1/chat/completions"
MISTYPED = {
    "/v1/chat/completions/": CHAT,
    "/v1/chat/completions//": CHAT,
    "/v1/v1/chat/completions": CHAT,
    "/v1/v1/v1/chat/completions/": CHAT,
    "//v1/chat/completions": CHAT,
    "/v1//chat/completions": CHAT,
    "/chat/completions": CHAT,
    "/v1/chat/completions/?a=1": f"{CHAT}?a=1",
    "/openai/v1/chat/completions?api-version=preview": f"{CHAT}?api-version=preview",
    "/openai/responses": "/v1/responses",
    "/v1/v1/embeddings": "/v1/embeddings",
    "/rerank": "/v1/rerank",
    "/rerank/": "/v1/rerank",
    "/v1/v1/rerank": "/v1/rerank",
    "/v1/v1/messages": "/v1/messages",
    "/messages": "/v1/messages",
    "/v1/moderations/": "/v1/moderations",
    "/v1/audio/speech/": "/v1/audio/speech",
    "/v1/images/generations": "/v1/images/generations",
    "/v1/audio/voices/clone": "/v1/audio/voices/clone",
    "/openai/deployments/m/chat/completions?api-version=2024-10-21": (
        f"{CHAT}?api-version=2024-10-21"
    ),
    "/openai/deployments/m/embeddings/": "/v1/embeddings",
}


@pytest.mark.parametrize("path", MISTYPED)
async def test_a_node_is_asked_for_the_path_that_was_meant(rig: Rig, path: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=path)
    assert call.path == MISTYPED[path]
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200


@pytest.mark.parametrize(
    "path", ["/api/chat/", "//api/generate", "/v1/api/embed", "/api/embeddings"]
)
async def test_ollamas_paths_are_understood_in_the_same_way(rig: Rig, path: str) -> None:
    node = await rig.node(kind="ollama")
    await rig.start(node)
    client, call = await rig.run(node, path=path, stream=False)
    assert call.path == path.removeprefix("/v1").replace("//", "/").rstrip("/")
    await call.answer({"done": True})
    assert (await client.reply()).status == 200


@pytest.mark.parametrize(
    "path",
    ["/v1", "/", "/v1/", "/v2/chat/completions", "/v1/chat", "/openai/deployments/m", "/v1/audio/",
     "/openai/deployments//chat/completions", "/v1/audio/../chat/completions", "/v1/audio/a?b",
     "/v1/audio/%2e%2e/x", "/openai/deployments/a%0ab/completions", "/" * PATH_BYTES_MAX + "/v1"],
)  # fmt: skip
def test_other_paths_are_no_inference(path: str) -> None:
    assert find_route(path.encode()) is None


@pytest.mark.parametrize(
    ("path", "model"),
    [("/openai/deployments/gpt-4o/chat/completions", "gpt-4o"),
     ("/openai/deployments/meta/llama/completions", "meta/llama"),
     ("/openai/deployments/a%20b%2Fc:8b/audio/transcriptions/", "a b/c:8b"),
     ("/v1/chat/completions", "")],
)  # fmt: skip
def test_azures_path_names_the_model(path: str, model: str) -> None:
    way = find_route(path.encode())
    assert way is not None
    assert way.model == model


AZURE = "/openai/deployments/m/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("body", "sent"),
    [(b'{"messages": []}', b'{"model":"m","messages": []}'),
     (b' { }', b' {"model":"m" }'),
     (b'{"model": "gpt-4o", "messages": [ ]}', b'{"model": "m", "messages": [ ]}'),
     (b'{"messages": [ ],  "model":"m"}', b'{"messages": [ ],  "model":"m"}')],
)  # fmt: skip
async def test_the_deployment_counts_and_not_what_the_body_says(
    rig: Rig, body: bytes, sent: bytes
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.post(AZURE, body)
    call = await node.next_call()
    assert call.body == sent
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200


async def test_a_large_body_without_a_model_gets_one_too(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    text = "word " * 200_000
    await client.post(AZURE, json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
    call = await node.next_call()
    assert call.json["model"] == "m"
    assert call.json["messages"][0]["content"] == text
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200


async def test_a_deployment_may_be_an_alias_and_an_unknown_one_is_named(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"gpt-4o": "m"}})
    client, call = await rig.run(node, model="x", path=AZURE.replace("/m/", "/gpt-4o/"))
    assert call.json["model"] == "m"
    await call.answer({"choices": []})
    assert (await client.reply()).headers["x-forebay-model"] == "m"
    unknown = await (await rig.ask(model="m", path=AZURE.replace("/m/", "/mm/"))).reply()
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
    assert '"mm"' in unknown.json["error"]["message"]


async def test_azures_key_is_a_key_and_does_not_reach_the_node(rig: Rig) -> None:
    node = await rig.node()
    key = {"name": "a", "key_env": "A", "models": ["m"]}
    await rig.start(node, keys=[key], environ={"A": "sk-azure"})
    client, call = await rig.run(node, path=AZURE, headers={"api-key": "sk-azure"})
    assert "api-key" not in call.headers
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200
    for more, status in (({}, 401), ({"x-api-key": "sk-azure"}, 400)):
        headers = {"api-key": "sk-other", **more}
        assert (await (await rig.ask(path=AZURE, headers=headers)).reply()).status == status
    other = AZURE.replace("/m/", "/other/")
    reply = await (await rig.ask(model="m", path=other, headers={"api-key": "sk-azure"})).reply()
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")


async def test_errors_of_a_mistyped_path_are_in_the_words_of_its_family(rig: Rig) -> None:
    await rig.start(await rig.node())
    reply = await (await rig.ask(model="none", path="/v1/v1/messages")).reply()
    assert reply.json["type"] == "error"


async def test_a_mistyped_path_is_counted_as_its_route(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    for path in ("/v1/v1/chat/completions/", "/v1/audio/one", "/v1/audio/two"):
        client, call = await rig.run(node, path=path)
        await call.answer({"choices": []})
        await client.reply()
    text = (await rig.get("/metrics")).body.decode()
    assert f'forebay_requests_total{{outcome="served",route="{CHAT}"}} 1.0' in text
    assert 'route="/v1/audio/*"} 2.0' in text
