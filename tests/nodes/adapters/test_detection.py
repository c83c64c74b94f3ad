"""Which kind of server answers: one by one, and through discovery."""

import asyncio

import pytest
from starlette.responses import Response

from forebay.errors import BackendFailed
from forebay.nodes import ADAPTERS, Fetch, Found, ProbeReply, discover
from forebay.nodes.adapters.detection import detect
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode

from ..asking import HttpxFetch
from ..doubles import LLAMA_CPP_LOADING, LLAMA_CPP_ROUTER, LM_STUDIO, OLLAMA, VLLM, Answers, double

REQUESTS_MAX = 3

KNOWN: dict[str, tuple[Answers, str]] = {
    "Ollama": (OLLAMA, "ollama"),
    "Ollama with no model yet": (
        {"/v1/models": {"data": None}, "/api/version": {"version": "0.5.0"}},
        "ollama",
    ),
    "vLLM": (VLLM, "vllm"),
    "LM Studio": (LM_STUDIO, "lm-studio"),
    "LM Studio with no model yet": (
        {"/v1/models": {"data": []}, "/api/v0/models": {"data": []}},
        "lm-studio",
    ),
    "llama.cpp while it loads": (LLAMA_CPP_LOADING, "llama-cpp"),
    "llama.cpp as a router": (LLAMA_CPP_ROUTER, "llama-cpp"),
    "any other": ({"/v1/models": {"data": [{"id": "m"}]}}, "openai-compatible"),
    "one that wants a key": ({"/v1/models": Response(status_code=401)}, "openai-compatible"),
}


@pytest.mark.parametrize(("answers", "kind"), KNOWN.values(), ids=KNOWN.keys())
async def test_each_kind_is_recognised_in_a_few_requests(answers: Answers, kind: str) -> None:
    async with HttpxFetch(app=double(answers)) as fetch:
        assert (await detect(fetch)).kind == kind
        assert len(fetch.asked) <= REQUESTS_MAX


async def test_a_real_llama_cpp_is_recognised(llama_url: str) -> None:
    async with HttpxFetch(llama_url) as fetch:
        assert (await detect(fetch)).kind == "llama-cpp"


async def test_the_real_simulated_node_is_recognised() -> None:
    node = SimNode(SimOptions())
    await node.start()
    async with HttpxFetch(node.url) as fetch:
        assert (await detect(fetch)).kind == "sim"
    await node.stop()


@pytest.mark.parametrize(
    "answers",
    [{}, {"/v1/models": b"<html>hello</html>"}, {"/v1/models": {"error": "no"}}],
    ids=["a server of something else", "a web page", "an error with status 200"],
)
async def test_what_lists_no_models_is_no_node(answers: Answers) -> None:
    async with HttpxFetch(app=double(answers)) as fetch:
        with pytest.raises(BackendFailed):
            await detect(fetch)


async def test_a_port_where_nobody_listens_is_a_failure() -> None:
    async with HttpxFetch("http://127.0.0.1:9") as fetch:
        with pytest.raises(BackendFailed):
            await detect(fetch)
        assert len(fetch.asked) == 1


def test_every_adapter_is_found_under_its_own_kind() -> None:
    assert all(adapter.kind == kind for kind, adapter in ADAPTERS.items())
    assert set(ADAPTERS) == {"sim", "llama-cpp", "vllm", "ollama", "lm-studio", "openai-compatible"}


async def never_answers(method: str, path: str, body: bytes = b"") -> ProbeReply:
    await asyncio.Event().wait()
    raise AssertionError


async def test_discovery_finds_what_is_there_and_names_it_by_kind() -> None:
    ports: dict[str, Fetch] = {
        "http://a": HttpxFetch(app=double(OLLAMA)),
        "http://b": HttpxFetch(app=double({})),
        "http://c": HttpxFetch(app=double(VLLM)),
        "http://d": HttpxFetch(app=double(OLLAMA)),
    }
    assert await discover(ports.__getitem__, ports) == (
        Found("ollama", "http://a", "ollama"),
        Found("vllm", "http://c", "vllm"),
        Found("ollama-2", "http://d", "ollama"),
    )


async def test_discovery_does_not_wait_for_a_port_that_hangs() -> None:
    ports: dict[str, Fetch] = {"http://a": never_answers, "http://b": never_answers}
    assert await discover(ports.__getitem__, ports, limit_s=0.0) == ()


async def test_discovery_asks_all_ports_at_once() -> None:
    together = asyncio.Barrier(3)

    async def answers_when_all_are_asked(method: str, path: str, body: bytes = b"") -> ProbeReply:
        await together.wait()
        raise BackendFailed("nobody")

    found = await discover(lambda _: answers_when_all_are_asked, ["x", "y", "z"], limit_s=30.0)
    assert found == ()
