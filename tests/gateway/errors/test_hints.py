"""What an error says beyond what is wrong: the setting to change, the name that was meant."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.errors.codes import CODES, THERE_ARE_JAPANESE
from forebay.gateway.hot.model_names import nearest
from forebay.settings import digest_of
from forebay.settings.names import blocks, valid_keys

from .test_rejections import fill

if TYPE_CHECKING:
    from ..conftest import Rig

JAPANESE = {"Accept-Language": "ja"}
SETTING = re.compile(r"`([a-z]+\.[a-z_]+)`")


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        ("queue_full", "queue.max_size"),
        ("user_queue_full", "queue.max_per_user"),
        ("queue_timeout", "queue.max_wait_seconds"),
        ("queue_disabled", "queue.max_size"),
        ("stream_not_queued", "queue.stream"),
        ("too_many_connections", "server.connections_max"),
        ("first_byte_timeout", "queue.first_byte_seconds"),
        ("run_timeout", "queue.run_seconds"),
        ("chunk_timeout", "queue.chunk_gap_seconds"),
        ("body_too_large", "server.body_max_bytes"),
        ("request_timeout", "server.body_seconds"),
        ("forbidden_host", "server.allowed_hosts"),
        ("store_unavailable", "jobs.database"),
        ("job_queue_full", "jobs.max_queue_depth"),
        ("too_many_sessions", "sessions.max_sessions"),
    ],
)
def test_an_error_that_a_setting_cures_names_it_in_both_languages(code: str, setting: str) -> None:
    assert setting in CODES[code].remedy
    assert setting in CODES[code].hint_japanese


def test_hints_name_only_settings_that_exist_and_the_same_ones_in_both_languages() -> None:
    known = set(valid_keys()) | {
        f"{name}.{field}" for name, block in blocks().items() for field in block.model_fields
    }
    for name, code in CODES.items():
        named = set(SETTING.findall(code.remedy))
        assert named <= known, name
        if code.hint_japanese:
            assert set(SETTING.findall(code.hint_japanese)) == named, name


async def test_a_refusal_carries_its_hint_in_the_callers_language_and_every_family(
    rig: Rig,
) -> None:
    await fill(rig, queue={"max_size": 0})
    english = (await (await rig.ask()).reply()).json["error"]
    assert english["hint"] == CODES["queue_disabled"].remedy
    japanese = (await (await rig.ask(headers=JAPANESE)).reply()).json["error"]
    assert japanese["hint"] == CODES["queue_disabled"].hint_japanese
    anthropic = (await (await rig.ask(path="/v1/messages")).reply()).json["error"]
    assert anthropic["hint"] == english["hint"]
    ollama = (await (await rig.ask(path="/api/chat")).reply()).json
    assert isinstance(ollama["hint"], str)


async def test_an_error_whose_message_says_it_all_has_no_hint(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert "hint" not in (await rig.get("/jobs?status=odd")).json["error"]


async def test_a_misspelt_model_is_answered_with_the_nearest_ones(rig: Rig) -> None:
    node = await rig.node(models=("llama3:8b", "llama3:70b", "mistral"))
    await rig.start(node, models={"aliases": {"the-best": "mistral"}})
    error = (await (await rig.ask(model="mistrl")).reply()).json["error"]
    assert error["message"] == 'no node has the model "mistrl"; did you mean "mistral"?'
    assert error["suggestions"] == ["mistral"]
    error = (await (await rig.ask(model="llama3")).reply()).json["error"]
    assert error["suggestions"] == ["llama3:8b", "llama3:70b"]
    assert (await (await rig.ask(model="thebest")).reply()).json["error"]["suggestions"] == [
        "the-best"
    ]
    error = (await (await rig.ask(model="gpt-4o")).reply()).json["error"]
    there = '"llama3:70b", "llama3:8b", "mistral" and 1 more'
    assert error["message"] == f'no node has the model "gpt-4o"; there are {there}'
    assert "suggestions" not in error
    assert error["available"] == ["llama3:70b", "llama3:8b", "mistral"]
    japanese = (await (await rig.ask(model="gpt-4o", headers=JAPANESE)).reply()).json["error"]
    assert japanese["message"] == THERE_ARE_JAPANESE.format(
        message="モデルが見つかりません: gpt-4o", names="llama3:70b, llama3:8b, mistral"
    )
    japanese = (await (await rig.ask(model="mistrl", headers=JAPANESE)).reply()).json["error"]
    assert japanese["message"].startswith(CODES["model_not_found"].japanese)
    assert "mistral" in japanese["message"]
    assert (await rig.get("/v1/models/mistrl")).json["error"]["suggestions"] == ["mistral"]


async def test_models_that_a_key_may_not_use_are_not_suggested(rig: Rig) -> None:
    keys = [
        {"name": "all", "key_sha256": digest_of("all")},
        {"name": "some", "key_sha256": digest_of("some"), "models": ["mistral", "mistral-x"]},
    ]
    await rig.start(await rig.node(models=("mistral", "mistral-secret")), keys=keys)

    async def suggested(secret: str) -> list[str]:
        headers = {"Authorization": f"Bearer {secret}"}
        error = (await (await rig.ask(model="mistral-x", headers=headers)).reply()).json["error"]
        assert error["code"] == "model_not_found"
        return list(error["suggestions"])

    assert "mistral-secret" in await suggested("all")
    assert await suggested("some") == ["mistral"]


async def test_with_nothing_near_only_what_the_key_may_use_is_named(rig: Rig) -> None:
    keys = [
        {"name": "some", "key_sha256": digest_of("some"), "models": ["b", "mistral", "gpt-4o"]},
        {"name": "none", "key_sha256": digest_of("none"), "models": ["gpt-4o"]},
    ]
    await rig.start(await rig.node(models=("a-secret", "b", "mistral")), keys=keys)

    async def told(secret: str) -> str:
        headers = {"Authorization": f"Bearer {secret}"}
        error = (await (await rig.ask(model="gpt-4o", headers=headers)).reply()).json["error"]
        return str(error["message"])

    assert await told("some") == 'no node has the model "gpt-4o"; there are "b", "mistral"'
    assert await told("none") == 'no node has the model "gpt-4o"'


async def test_a_name_from_outside_is_cut_and_cannot_break_the_line(rig: Rig) -> None:
    await rig.start(await rig.node(models=("m" * 300,)))
    error = (await (await rig.ask(model="x\n" * 400)).reply()).json["error"]
    shown, named = "x?" * 39 + "x…", "m" * 79 + "…"
    assert error["message"] == f'no node has the model "{shown}"; there is "{named}"'
    assert error["model"] == shown


async def test_a_job_and_a_session_for_a_misspelt_model_hear_of_the_nearest(rig: Rig) -> None:
    await rig.start(await rig.node(models=("mistral",)))
    job = {"type": "chat", "params": {"model": "mistrl", "messages": []}}
    for path, body in (("/jobs", job), ("/session", {"model": "mistrl"})):
        reply = await rig.get(path, method="POST", body=json.dumps(body).encode())
        assert reply.json["error"]["suggestions"] == ["mistral"], path


async def test_a_misspelt_node_or_status_is_answered_with_the_nearest(rig: Rig) -> None:
    await rig.start(await rig.node())
    error = (await rig.get("/admin/nodes/n/drain", method="POST")).json["error"]
    assert "did you mean n1?" in error["message"]
    error = (await rig.get("/admin/nodes/zebra/drain", method="POST")).json["error"]
    assert "there are n1" in error["message"]
    assert "did you mean queued?" in (await rig.get("/jobs?status=quued")).json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/model", "/v1/models"),
        ("/helth", "/health"),
    ],
)
async def test_a_misspelt_route_is_answered_with_the_nearest(
    rig: Rig, path: str, meant: str
) -> None:
    await rig.start(await rig.node())
    error = (await rig.get(path)).json["error"]
    assert error["code"] == "not_found"
    assert f"did you mean {meant}? See /openapi.json" in error["message"]


def test_suggestions_are_few_and_nothing_is_compared_with_an_endless_name() -> None:
    names = [f"model-{i}" for i in range(50)]
    assert len(nearest("model-", names)) == 3
    assert nearest("m" * 101, ["m" * 100]) == []
    assert nearest("", names) == []
