"""The adapter and the tiny model against a real llama.cpp server."""

from pathlib import Path

import httpx
import msgspec

from forebay.nodes import ADAPTERS, NodeReport
from harness.tiny_model import write_tiny_model

from ..asking import LIMIT_S, HttpxFetch
from ..conftest import LLAMA_ALIAS, LLAMA_SLOTS

PROMPT = [{"role": "user", "content": "Is the queue waiting?"}]


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=LIMIT_S, trust_env=False)


async def test_a_real_llama_cpp_tells_its_model_and_its_slots(llama_url: str) -> None:
    async with HttpxFetch(llama_url) as fetch:
        report = await ADAPTERS["llama-cpp"].probe(fetch)
    assert report.about[LLAMA_ALIAS]["owned_by"] == "llamacpp"
    assert report == NodeReport(
        models=(LLAMA_ALIAS,),
        families=("openai", "anthropic"),
        kind="llama-cpp",
        slots=LLAMA_SLOTS,
        contexts={LLAMA_ALIAS: 512},
        about=report.about,
        version=report.version,
    )


async def test_a_real_llama_cpp_serves_the_families_that_its_adapter_names(llama_url: str) -> None:
    body = {"model": LLAMA_ALIAS, "max_tokens": 4, "messages": PROMPT, "ignore_eos": True}
    async with client(llama_url) as llama:
        chat = (await llama.post("/v1/chat/completions", json=body)).json()
        message = (await llama.post("/v1/messages", json=body)).json()
        ollama = await llama.post("/api/chat", json=body)
    assert chat["usage"]["completion_tokens"] == 4
    assert message["usage"]["output_tokens"] == 4
    assert ollama.status_code == 404


async def test_the_tiny_model_follows_a_json_schema(llama_url: str) -> None:
    answer = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    schema = {"name": "answer", "schema": answer | {"additionalProperties": False}}
    body = {
        "messages": PROMPT,
        "max_tokens": 300,
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    async with client(llama_url) as llama:
        chat = (await llama.post("/v1/chat/completions", json=body)).json()
    text = chat["choices"][0]["message"]["content"]
    assert isinstance(msgspec.json.decode(text)["ok"], bool)


def test_the_tiny_model_is_tiny_and_the_same_each_time(tiny_gguf: Path, tmp_path: Path) -> None:
    again = write_tiny_model(tmp_path / "again.gguf")
    assert again.read_bytes() == tiny_gguf.read_bytes()
    assert again.stat().st_size < 1_000_000
