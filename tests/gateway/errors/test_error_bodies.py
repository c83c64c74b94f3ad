"""The words of a refusal: language, dialect, when to come back, and the profile of another time."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.errors.codes import CODES
from forebay.gateway.errors.rendering import ErrorRenderer
from forebay.gateway.hot.admission import FAMILIES
from forebay.relay.problem import Problem
from forebay.settings import QueueSettings

from .test_rejections import fill

if TYPE_CHECKING:
    from forebay.relay.family import Family
    from forebay.testing import Reply

    from ..conftest import Rig

JAPANESE = {"Accept-Language": "ja-JP,ja;q=0.9,en;q=0.5"}
FULL_IN_JAPANESE = "キューが満杯です（すべてのノードが過負荷です）"  # noqa: RUF001
MESSAGES, GENERATE = "/v1/messages", "/api/generate"


async def test_refusals_are_in_japanese_for_those_who_prefer_it(rig: Rig) -> None:
    await fill(rig, queue={"max_size": 1})
    [waiter] = await rig.line_up(1, headers=JAPANESE)
    full = await (await rig.ask(headers=JAPANESE)).reply()
    assert full.json["error"]["message"] == FULL_IN_JAPANESE
    rig.clock.advance(60.0)
    assert (await waiter.reply()).json["error"]["message"] == "キュー待機タイムアウト"


@pytest.mark.parametrize("languages", ["en, ja;q=0.9", "ja;q=0.2, en", "de", "ja;q=0", ""])
async def test_refusals_are_in_english_for_all_others(rig: Rig, languages: str) -> None:
    await fill(rig, queue={"max_size": 0})
    reply = await (await rig.ask(headers={"Accept-Language": languages})).reply()
    assert reply.json["error"]["message"] == "all nodes are busy and the queue is off"


async def test_pages_that_are_not_hot_speak_japanese_too(rig: Rig) -> None:
    await rig.start(await rig.node())
    for path in ("/v1/queue/nobody", "/nowhere", "/v1/models/none"):
        message = (await rig.get(path, JAPANESE)).json["error"]["message"]
        assert message.startswith(tuple(code.japanese for code in CODES.values()))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("code", [name for name, code in CODES.items() if code.retry_after])
def test_an_error_in_a_stream_says_when_to_try_again(family: Family, code: str) -> None:
    problems = ErrorRenderer(QueueSettings(), Random(1), lambda problem, *_: problem)
    written = problems.render_in_stream(Problem(code, "no", retry_after_s=30.0), family, "en")
    body = json.loads(written[written.index(b"{") :])
    inner = body if family.name == "ollama" else body["error"]
    assert 24 <= inner["retry_after"] <= 36


@pytest.mark.parametrize("path", ["/v1/chat/completions", MESSAGES])
async def test_a_stream_that_waited_too_long_is_told_when_to_try_again(rig: Rig, path: str) -> None:
    node = await rig.node()
    await rig.start(node, queue={"keepalive_seconds": 2.0, "max_wait_seconds": 3.0})
    await rig.measure(node, 10.0, path=path)
    await rig.run(node, path=path)
    [client] = await rig.line_up(1, path=path, stream=True)
    rig.clock.advance(2.0)
    await client.head()
    await client.chunk()
    rig.clock.advance(1.0)
    said = await client.chunk() or b""
    error = json.loads(said[said.index(b"{") :])["error"]
    assert (error["code"], error["waited_seconds"]) == ("queue_timeout", 3.0)
    assert 1 <= error["retry_after"] <= 120


def test_every_error_has_words_in_japanese() -> None:
    assert [name for name, code in CODES.items() if not code.japanese] == []


async def test_each_family_is_refused_in_its_own_words(rig: Rig) -> None:
    node, other = await rig.node(), await rig.node(kind="ollama", models=("o",))
    await rig.start(node, other, queue={"max_size": 0})
    await rig.run(node)
    await rig.run(other, model="o", path=GENERATE)
    openai = (await (await rig.ask()).reply()).json
    anthropic = (await (await rig.ask(path=MESSAGES)).reply()).json
    ollama = (await (await rig.ask(model="o", path=GENERATE)).reply()).json
    text = "all nodes are busy and the queue is off"
    assert set(openai) == {"error"}
    members = {"message", "type", "code", "param", "retry_after", "hint"}
    assert set(openai["error"]) == members
    assert openai["error"]["type"] == openai["error"]["code"] == "queue_disabled"
    assert anthropic["type"] == "error"
    assert anthropic["error"]["type"] == "overloaded_error"
    assert anthropic["error"]["code"] == "queue_disabled"
    assert anthropic["error"]["message"] == openai["error"]["message"] == text
    assert (ollama["error"], ollama["code"]) == (text, "queue_disabled")


def anthropic_type(reply: Reply) -> tuple[int, str, str]:
    error = reply.json["error"]
    assert reply.json["type"] == "error"
    return reply.status, error["type"], error["code"]


async def test_anthropics_clients_are_told_its_own_types(rig: Rig) -> None:
    node = await rig.node()
    key = {"name": "a", "key_env": "A", "models": ["m"]}
    limits = {"max_size": 1, "max_wait_seconds": 5.0}
    await rig.start(node, keys=[key], environ={"A": "sk-a"}, queue=limits)
    rig.headers = own = {"x-api-key": "sk-a"}
    with_key: dict[str, Any] = {"path": MESSAGES, "headers": own}

    async def asked(**more: Any) -> tuple[int, str, str]:
        return anthropic_type(await (await rig.ask(**{**with_key, **more})).reply())

    assert await asked(headers={}) == (401, "authentication_error", "unauthorized")
    assert await asked(model="x") == (403, "permission_error", "forbidden")
    assert await asked(model=7) == (400, "invalid_request_error", "invalid_request")
    _, call = await rig.run(node, **with_key)
    [waiting] = await rig.line_up(1, **with_key)
    assert await asked() == (429, "rate_limit_error", "queue_full")
    rig.clock.advance(5.0)
    timed_out = anthropic_type(await waiting.reply())
    assert timed_out == (504, "timeout_error", "queue_timeout")
    await call.answer({"content": []})
    client, call = await rig.run(node, **with_key)
    await call.answer({}, 401)
    assert anthropic_type(await client.reply()) == (502, "api_error", "node_failed")
    listed = await rig.get("/v1/models/none", {**own, "anthropic-version": "2023-06-01"})
    assert anthropic_type(listed) == (404, "not_found_error", "model_not_found")


async def test_an_error_in_anthropics_stream_has_its_type_too(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path=MESSAGES, stream=True)
    await call.start_stream()
    await call.chunk(b"event: ping\ndata: {}\n\n")
    call.close()
    text = (await client.reply()).body.decode()
    assert "event: error" in text
    assert '"type":"api_error"' in text


async def test_an_unreadable_request_is_refused_in_the_words_of_its_route(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"body_max_bytes": 10})
    anthropic = (await (await rig.ask(path=MESSAGES)).reply()).json
    assert (anthropic["type"], anthropic["error"]["code"]) == ("error", "body_too_large")
    ollama = (await (await rig.ask(path=GENERATE)).reply()).json
    assert isinstance(ollama["error"], str)
    assert ollama["code"] == "body_too_large"


async def test_callers_refused_together_are_not_told_to_come_back_together(rig: Rig) -> None:
    await fill(rig, queue={"max_size": 0})
    delays = {(await (await rig.ask()).reply()).headers["retry-after-ms"] for _ in range(20)}
    assert len(delays) > 1


@pytest.mark.parametrize(
    ("service_s", "bounds"), [(0.01, (1, 1)), (10.0, (8, 12)), (900.0, (60, 60))]
)
async def test_retry_after_is_the_measured_wait_within_its_bounds(
    rig: Rig, service_s: float, bounds: tuple[int, int]
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 0, "run_seconds": 1000.0})
    await rig.measure(node, service_s)
    await rig.run(node)
    for _ in range(10):
        reply = await (await rig.ask()).reply()
        assert bounds[0] <= int(reply.headers["retry-after"]) <= bounds[1]
        assert bounds[0] * 1000 <= int(reply.headers["retry-after-ms"]) <= bounds[1] * 1000


async def test_the_nexus_profile_is_specification_0_in_one_word(rig: Rig) -> None:
    await fill(rig, queue={"profile": "nexus", "max_size": 2})
    low = {"X-Nexus-Priority": "low"}
    [waiter] = await rig.line_up(1, headers=low)
    assert (await rig.queue())["by_priority"] == {"high": 0, "normal": 1}
    await rig.line_up(1)
    stream = await (await rig.ask(stream=True)).reply()
    assert (stream.status, stream.json["error"]["code"]) == (503, "stream_not_queued")
    assert (await (await rig.ask()).reply()).status == 503
    rig.clock.advance(30.0)
    assert (await waiter.reply()).status == 503


async def test_a_setting_that_is_given_wins_over_the_profile(rig: Rig) -> None:
    await fill(rig, queue={"profile": "nexus", "timeout_status": 504, "max_wait_seconds": 5.0})
    [waiter] = await rig.line_up(1)
    rig.clock.advance(5.0)
    assert (await waiter.reply()).status == 504
