"""The routes beside chat, as the stock clients call them: real llama.cpp where it has the route."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import ollama
import openai
import pytest

from .conftest import MODEL, PROMPT

if TYPE_CHECKING:
    from forebay.testing.fake_node import Call

    from .conftest import Engine, Stage

MESSAGES: Any = PROMPT
SOUND = b"RIFF\x24\x00\x00\x00WAVEfmt "


async def test_real_llama_cpp_counts_tokens_without_a_slot(stage: Stage, engine: Engine) -> None:
    async with httpx.AsyncClient(base_url=stage.url, trust_env=False) as client:
        cut = await client.post("/tokenize", json={"content": "still water"})
        assert cut.status_code == 200
        tokens = cut.json()["tokens"]
        joined = await client.post("/detokenize/", json={"model": MODEL, "tokens": tokens})
        assert joined.json()["content"].strip() == "still water"
        assert joined.headers["x-forebay-node"] == "n1"

    def count() -> int:
        import anthropic  # which takes two seconds

        with anthropic.Anthropic(base_url=stage.url, api_key="none") as client:
            return int(client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens)

    assert await asyncio.to_thread(count) > 0


async def test_what_a_real_llama_cpp_was_not_started_for_is_route_not_supported(
    stage: Stage, engine: Engine
) -> None:
    async with httpx.AsyncClient(base_url=stage.url, trust_env=False) as client:
        for path, body in (
            ("/rerank", {"query": "q", "documents": ["d"]}),
            ("/v1/embeddings", {"input": "x"}),
            ("/v1/moderations", {"input": "x"}),
            ("/v1/images/generations", {"prompt": "x"}),
        ):
            reply = await client.post(path, json={"model": MODEL, **body})
            told = reply.json()["error"]
            assert (reply.status_code, told["code"]) == (404, "route_not_supported"), (path, told)
        chat = await client.post(
            "/v1/v1/chat/completions/", json={"model": MODEL, "messages": PROMPT, "max_tokens": 2}
        )
        assert chat.status_code == 200


async def test_azures_client_talks_to_a_real_engine(stage: Stage, engine: Engine) -> None:
    def talk(**options: Any) -> Any:
        with openai.AzureOpenAI(
            azure_endpoint=stage.url, api_key="none", api_version="2024-10-21", **options
        ) as client:
            return client.chat.completions.create(
                model=options.get("azure_deployment", MODEL), messages=MESSAGES, max_tokens=2
            )

    assert (await asyncio.to_thread(talk)).choices
    assert (await asyncio.to_thread(talk, azure_deployment=MODEL)).choices


async def test_a_real_list_of_models_keeps_what_the_engine_says(
    stage: Stage, engine: Engine
) -> None:
    def listed() -> Any:
        with openai.OpenAI(base_url=f"{stage.url}/v1/", api_key="none") as client:
            (model,) = client.models.list()
            return model

    model = await asyncio.to_thread(listed)
    assert model.owned_by == "llamacpp"
    assert model.created > 0
    assert model.meta["n_ctx_train"] > 0


async def answer_anything(call: Call) -> None:
    """Be a server that has every route, as far as clients read the answers."""
    if "/audio/speech" in call.path:
        await call.answer(b"\xff\xfbsound", headers={"content-type": "audio/mpeg"})
    elif "/audio/" in call.path:
        assert b'name="model"' in call.body
        assert SOUND in call.body
        await call.answer({"text": "hello"})
    elif "/images/" in call.path:
        await call.answer({"created": 1, "data": [{"b64_json": "aGk="}]})
    else:
        result = {"flagged": False, "categories": {}, "category_scores": {}}
        await call.answer({"id": "m", "model": "m", "results": [result]})


@pytest.mark.parametrize("azure", [False, True])
async def test_openai_sends_sound_and_pictures(stage: Stage, azure: bool) -> None:
    node = await stage.fake_node()
    node.automatic = answer_anything
    await stage.start(node.url)

    def talk() -> list[Any]:
        client: openai.OpenAI = (
            openai.AzureOpenAI(azure_endpoint=stage.url, api_key="none", api_version="2024-10-21")
            if azure
            else openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none")
        )
        with client:
            heard = client.audio.transcriptions.create(model="m", file=("a.wav", SOUND))
            spoken = client.audio.speech.create(model="m", voice="alloy", input="hello")
            drawn = client.images.generate(model="m", prompt="a forebay")
            edited = client.images.edit(model="m", image=("a.png", SOUND), prompt="more water")
            judged = client.moderations.create(model="m", input="hello")
            return [heard.text, spoken.content, drawn.data, edited.data, judged.results]

    heard, spoken, drawn, edited, judged = await asyncio.to_thread(talk)
    assert (heard, spoken) == ("hello", b"\xff\xfbsound")
    assert drawn[0].b64_json == edited[0].b64_json == "aGk="
    assert judged[0].flagged is False


async def test_ollama_shows_lists_and_embeds(stage: Stage) -> None:
    node = await stage.fake_node(kind="ollama")

    async def answer(call: Call) -> None:
        if call.path == "/api/show":
            await call.answer({"details": {"family": "llama"}, "model_info": {}})
        elif call.path == "/api/embeddings":
            await call.answer({"embedding": [0.5]})
        else:
            await call.answer({"model": "m", "embeddings": [[0.5]]})

    node.automatic = answer
    await stage.start(node.url)

    def talk() -> tuple[Any, ...]:
        client = ollama.Client(host=stage.url)
        shown, running = client.show("m"), client.ps()
        embedded, old = client.embed("m", "x"), client.embeddings("m", "x")
        client._client.close()
        return shown, running, embedded, old

    shown, running, embedded, old = await asyncio.to_thread(talk)
    assert shown.details.family == "llama"
    assert [model.model for model in running.models] == ["m"]
    assert list(embedded.embeddings[0]) == list(old.embedding) == [0.5]
