"""Each adapter against its server's documented answers, and all of them against nonsense."""

import msgspec
import pytest
from starlette.responses import Response

from forebay.errors import BackendFailed
from forebay.nodes import ADAPTERS, NodeReport
from forebay.nodes.adapters.answers import MODELS_MAX

from ..asking import HttpxFetch
from ..doubles import (
    LLAMA_CPP_LOADING,
    LLAMA_CPP_ROUTER,
    LM_STUDIO,
    OLLAMA,
    VLLM,
    VLLM_IN_DEVELOPMENT,
    Answers,
    double,
)


async def probe(kind: str, answers: Answers) -> NodeReport:
    async with HttpxFetch(app=double(answers)) as fetch:
        return await ADAPTERS[kind].probe(fetch)


async def test_ollama_tells_what_it_has_and_what_is_in_memory() -> None:
    assert msgspec.structs.replace(await probe("ollama", OLLAMA), about={}) == NodeReport(
        models=("gemma4:latest", "all-minilm:22m"),
        families=("ollama", "openai", "anthropic"),
        kind="ollama",
        loaded=("gemma4:latest",),
        vram_used_bytes=5333539264,
        contexts={"gemma4:latest": 4096},
        version="0.40.12",
    )


async def test_what_a_server_says_of_its_models_is_kept_and_what_it_may_hide_is_not() -> None:
    vllm = (await probe("vllm", VLLM)).about
    assert vllm["Qwen/Qwen3-8B"] == {
        "created": 1686935002, "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "max_model_len": 40960,
    }  # fmt: skip
    ollama = (await probe("ollama", OLLAMA)).about
    assert set(ollama["gemma4:latest"]) == {"modified_at", "size", "digest", "details"}
    entry = {
        "id": "m", "aliases": ["n", 7], "owned_by": "x" * 1000, "meta": {"n_ctx_train": 512},
        "status": {"args": ["--api-key", "secret"]}, "created": 5, "details": ["x" * 5000],
    }  # fmt: skip
    odd = (await probe("openai-compatible", {"/v1/models": {"data": [entry]}})).about
    assert odd == {key: {"created": 5, "meta": {"n_ctx_train": 512}} for key in ("m", "n")}


async def test_an_ollama_before_0_14_does_not_speak_anthropic() -> None:
    report = await probe("ollama", {**OLLAMA, "/api/version": {"version": "0.13.5"}})
    assert report.families == ("ollama", "openai")


async def test_an_ollama_with_two_models_in_memory_has_room_for_two() -> None:
    running = {"models": [{"model": "a"}, {"model": "b"}]}
    report = await probe("ollama", {**OLLAMA, "/api/ps": running})
    assert (report.loaded, report.loaded_max) == (("a", "b"), 2)


async def test_an_ollama_with_nothing_in_memory_has_room_for_one() -> None:
    report = await probe("ollama", {**OLLAMA, "/api/ps": {"models": None}})
    assert (report.loaded, report.loaded_max) == ((), 1)


async def test_vllm_lists_its_model_and_its_adapters_and_holds_them_all() -> None:
    assert msgspec.structs.replace(await probe("vllm", VLLM), about={}) == NodeReport(
        models=("Qwen/Qwen3-8B", "sql-lora"),
        families=("openai", "anthropic"),
        kind="vllm",
        contexts={"Qwen/Qwen3-8B": 40960},
        version="0.32.0",
    )


async def test_vllm_in_development_mode_tells_its_slots() -> None:
    assert (await probe("vllm", VLLM_IN_DEVELOPMENT)).slots == 256


WAITING = b"""\
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 2.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-8B"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""


async def test_vllm_tells_how_many_wait_inside() -> None:
    assert (await probe("vllm", VLLM)).waiting == 0
    assert (await probe("vllm", {**VLLM, "/metrics": WAITING})).waiting == 3
    broken = b"vllm:num_requests_waiting 1.2.3\nvllm:num_requests_waiting NaN\n"
    assert (await probe("vllm", {**VLLM, "/metrics": broken})).waiting == 0


async def test_a_vllm_that_sends_its_settings_as_text_tells_no_slots() -> None:
    answers = {**VLLM, "/server_info": {"vllm_config": "model='Qwen/Qwen3-8B', ..."}}
    assert (await probe("vllm", answers)).slots is None


async def test_a_vllm_before_0_11_1_does_not_speak_anthropic() -> None:
    report = await probe("vllm", {**VLLM, "/version": {"version": "0.11.0"}})
    assert report.families == ("openai",)


async def test_a_vllm_whose_engine_died_is_a_failure() -> None:
    with pytest.raises(BackendFailed, match="503"):
        await probe("vllm", {**VLLM, "/health": Response(status_code=503)})


async def test_lm_studio_tells_what_is_loaded_and_how_much_runs_at_once() -> None:
    assert msgspec.structs.replace(await probe("lm-studio", LM_STUDIO), about={}) == NodeReport(
        models=("qwen2-vl-7b-instruct", "meta-llama-3.1-8b-instruct"),
        families=("openai", "anthropic"),
        kind="lm-studio",
        slots=4,
        loaded=("meta-llama-3.1-8b-instruct",),
    )


async def test_an_old_lm_studio_speaks_openai_only_and_tells_no_slots() -> None:
    unknown = {"error": "Unexpected endpoint or method. (GET /api/v1/models)"}
    report = await probe("lm-studio", {**LM_STUDIO, "/api/v1/models": unknown})
    assert (report.families, report.slots) == (("openai",), None)


async def test_a_llama_cpp_that_loads_says_so() -> None:
    report = await probe("llama-cpp", LLAMA_CPP_LOADING)
    assert (report.state, report.models) == ("loading", ())


async def test_a_llama_cpp_that_loads_and_already_names_its_model_is_believed() -> None:
    answers = {**LLAMA_CPP_LOADING, "/v1/models": {"data": [{"id": "m"}]}}
    report = await probe("llama-cpp", answers)
    assert (report.state, report.models) == ("loading", ("m",))


async def test_a_llama_cpp_that_names_no_slots_tells_how_many_wait_inside() -> None:
    waiting = {"/metrics": b"llamacpp:requests_deferred 4\n"}
    assert (await probe("llama-cpp", {**LLAMA_CPP_ROUTER, **waiting})).waiting == 4


async def test_a_llama_cpp_router_tells_which_models_are_loaded() -> None:
    report = await probe("llama-cpp", LLAMA_CPP_ROUTER)
    assert (report.models, report.loaded, report.slots) == (("small", "large"), ("small",), None)


async def test_any_other_server_is_known_by_its_models_alone() -> None:
    report = await probe("openai-compatible", {"/v1/models": {"data": [{"id": "m"}]}})
    assert report == NodeReport(models=("m",), families=("openai",), kind="openai-compatible")


PATHS = {
    "openai-compatible": ("/v1/models",),
    "sim": ("/v1/models",),
    "llama-cpp": ("/health", "/props", "/v1/models"),
    "vllm": ("/health", "/v1/models", "/version", "/server_info"),
    "ollama": ("/api/tags", "/api/ps", "/api/version"),
    "lm-studio": ("/api/v0/models", "/api/v1/models"),
}

NONSENSE = {
    "nothing": b"",
    "a page": b"<html>hello</html>",
    "half an object": b'{"data": [{"id": "m"}',
    "a list": b"[]",
    "a number": b"7",
    "no list": b'{"data": {"id": "m"}, "models": 3}',
    "not UTF-8": b'{"data": [{"id": "\xff"}], "models": [{"model": "\xff"}]}',
    "too deep": b"[" * 100_000,
    "a huge number": b'{"data": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_node_that_answers_nonsense_has_failed(kind: str, body: bytes) -> None:
    with pytest.raises(BackendFailed):
        await probe(kind, dict.fromkeys(PATHS[kind], body))


@pytest.mark.parametrize("kind", PATHS)
async def test_a_node_that_answers_errors_has_failed(kind: str) -> None:
    with pytest.raises(BackendFailed):
        await probe(kind, dict.fromkeys(PATHS[kind], Response(status_code=500)))


@pytest.mark.parametrize("kind", PATHS)
async def test_a_node_that_wants_a_key_says_so_in_its_failure(kind: str) -> None:
    with pytest.raises(BackendFailed, match="API key"):
        await probe(kind, dict.fromkeys(PATHS[kind], Response(status_code=401)))


@pytest.mark.parametrize("kind", PATHS)
async def test_fields_of_the_wrong_type_are_left_out_and_the_rest_is_kept(kind: str) -> None:
    odd: list[object] = [
        None,
        7,
        "text",
        [],
        {},
        {"id": 7, "model": 7, "name": 7, "state": "loaded"},
    ]
    good = {"id": "good", "model": "good", "aliases": 7, "status": 7, "loaded_instances": 7}
    body = {"data": [*odd, good], "models": [*odd, good], "version": 7, "slots": "4"}
    body |= {"total_slots": True, "loaded": 7, "loaded_max": -1, "build_info": ["x"]}
    report = await probe(kind, dict.fromkeys(PATHS[kind], body))
    assert report.models == ("good",)
    assert (report.slots, report.version) == (None, "")


@pytest.mark.parametrize("kind", PATHS)
async def test_names_that_cannot_be_names_are_dropped(kind: str) -> None:
    names = ["", "  ", "a\nb", "a\r\nX-Evil: 1", "a\x00", "\x1b[31m", "n" * 513, "n" * 512, "ok"]
    entries = [{"id": name, "model": name, "state": "loaded"} for name in [*names, "ok"]]
    body = {"data": entries, "models": entries}
    report = await probe(kind, dict.fromkeys(PATHS[kind], body))
    assert report.models == ("n" * 512, "ok")


@pytest.mark.parametrize("kind", PATHS)
async def test_no_more_models_are_taken_than_the_limit(kind: str) -> None:
    entries = [{"id": f"m{n}", "model": f"m{n}"} for n in range(MODELS_MAX + 5)]
    body = msgspec.json.encode({"data": entries, "models": entries})
    report = await probe(kind, dict.fromkeys(PATHS[kind], body))
    assert len(report.models) == MODELS_MAX
