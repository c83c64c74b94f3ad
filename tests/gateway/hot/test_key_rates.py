"""Keys with limits: they wait at their rate, say what is left, and are in nobody's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI, RateLimitError

from forebay.core import KeyLimits
from forebay.settings import SettingsError
from forebay.settings.loader import parse_key
from forebay.testing import FakeClock

from ..conftest import CHAT, OK
from ..sessions.session_steps import answer
from ..test_reload import reload
from . import forms
from .test_users_and_keys import SECRETS, A, B, key, start

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import FakeNode

    from ..conftest import Rig

DAILY = [key("a", tokens_per_day=100)]
USED = {**OK, "usage": {"prompt_tokens": 10, "completion_tokens": 20}}


async def test_a_request_over_its_rate_waits_and_others_pass(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", requests_per_minute=2), key("b")])
    for _ in range(2):
        await rig.run(node, headers=A)
    [late] = await rig.line_up(1, headers={**A, "X-Request-Id": "late"})
    client, call = await rig.run(node, headers=B)  # passes it, into a slot that it may not use
    await call.answer(OK)
    assert "x-ratelimit-limit-requests" not in (await client.reply()).headers
    seen = (await rig.get("/v1/queue/late")).json
    assert (seen["reason_code"], seen["position"]) == ("rate", 1)
    assert seen["reason"] == "its key is over its rate"
    assert seen["estimated_wait_seconds"]["p50"] == 30.0
    rig.clock.advance(30.1)
    await (await node.next_call()).answer(OK)
    reply = await late.reply()
    assert reply.status == 200
    assert reply.headers["x-queue-status"] == "queued"
    assert reply.headers["x-estimated-wait"] == "30"
    metrics = (await rig.get("/metrics")).body.decode()
    assert "forebay_rate_waits_total 1.0" in metrics


async def test_every_answer_of_a_key_with_limits_says_what_is_left(rig: Rig) -> None:
    node = await rig.node(slots=4)
    limits = {"requests_per_minute": 60, "tokens_per_minute": 6000}
    await start(rig, node, keys=[key("a", **limits)])
    client, call = await rig.run(node, headers=A, max_tokens=100)
    await call.answer(USED, headers={"x-ratelimit-limit-requests": "7"})
    headers = (await client.reply()).headers
    assert headers["x-ratelimit-limit-requests"] == "60"
    assert headers["x-ratelimit-remaining-requests"] == "59"
    assert headers["x-ratelimit-reset-requests"] == "1s"
    assert headers["x-ratelimit-limit-tokens"] == "6000"
    charged = 6000 - int(headers["x-ratelimit-remaining-tokens"])
    assert 100 <= charged < 120
    client, call = await rig.run(node, headers=A, max_tokens=20)  # the first used 30
    await call.answer({"error": "no"}, status=400)
    reply = await client.reply()
    assert reply.status == 400
    assert 6000 - int(reply.headers["x-ratelimit-remaining-tokens"]) in range(50, 70)


async def used(rig: Rig) -> tuple[int, int]:
    """Return the prompt and output tokens of the only key that has used any."""
    [row] = (await rig.get("/v1/usage?by=key")).json["data"]
    return row["prompt_tokens"], row["output_tokens"]


SOUND = forms.form(forms.field("model", "m"), forms.file(b"RIFF" * 100))
BILLION = b'"usage":{"prompt_tokens":999999999,"completion_tokens":999999999}'
KINDS = [(CHAT, False), (CHAT, True), ("/v1/embeddings", False)]


@pytest.mark.parametrize(("path", "stream"), KINDS)
async def test_a_node_charges_at_most_the_bytes_that_passed(
    rig: Rig, path: str, stream: bool
) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", tokens_per_minute=60)], queue={"max_wait_seconds": 300.0})
    client, call = await rig.run(node, path=path, stream=stream, headers=A)
    answer = b"data: {%b}\n\n" % BILLION if stream else b"{%b}" % BILLION
    kind = "text/event-stream" if stream else "application/json"
    await call.answer(answer, headers={"content-type": kind})
    assert (await client.reply()).status == 200
    assert await used(rig) == (len(call.body), len(answer))
    [late] = await rig.line_up(1, headers={**A, "X-Request-Id": "late"})
    assert (await rig.get("/v1/queue/late")).json["estimated_wait_seconds"]["p50"] <= 120.0
    rig.clock.advance(120.1)
    await (await node.next_call()).answer(OK)
    assert (await late.reply()).status == 200


@pytest.mark.parametrize("sent", [b"", b'{"usage":{"prompt_tokens":0,"completion_tokens":0},' * 80])
async def test_a_unary_call_that_is_broken_off_is_charged_its_prompt_and_what_came(
    rig: Rig, sent: bytes
) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", tokens_per_minute=90_000)])
    client = await rig.client()
    await client.request("POST", "/v1/audio/transcriptions", SOUND, {**A, **forms.TYPE})
    call = await node.next_call()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    await call.write(head + sent)
    await rig.queue()  # what was sent has been taken
    client.close()
    await call.gone()
    await rig.wait_until("processing", 0)
    assert await used(rig) == (1, len(sent) // 4)


async def test_what_cannot_start_in_time_is_refused_at_once_and_told_when(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", tokens_per_day=80)])
    client, call = await rig.run(node, headers=A, max_tokens=70)
    await call.answer({**OK, "usage": {"prompt_tokens": 40, "completion_tokens": 40}})
    assert (await client.reply()).status == 200
    refused = await rig.ask(headers=A)
    reply = await refused.reply()
    assert reply.status == 429
    assert reply.json["error"]["code"] == "rate_limited"
    assert reply.headers["x-should-retry"] == "true"
    assert int(reply.headers["retry-after"]) > 120
    assert reply.headers["x-ratelimit-remaining-tokens"] == "0"
    assert reply.headers["x-ratelimit-reset-tokens"].endswith("s")
    japanese = await rig.ask(headers={**A, "Accept-Language": "ja"})
    assert "レート" in (await japanese.reply()).json["error"]["message"]


async def test_a_restart_remembers_what_a_key_has_used_today(rig: Rig, tmp_path: Path) -> None:
    node = await rig.node(slots=4)
    settings: dict[str, Any] = {
        "keys": [key("a", tokens_per_day=80)],
        "jobs": {"database": f"sqlite:///{tmp_path / 'forebay.db'}"},
    }
    await start(rig, node, **settings)
    client, call = await rig.run(node, headers=A, max_tokens=70)
    await call.answer({**OK, "usage": {"prompt_tokens": 40, "completion_tokens": 40}})
    assert (await client.reply()).status == 200
    client.close()
    assert (await rig.get("/v1/usage")).json["data"]  # it is written
    await rig.gateway.stop(0.0)
    await start(rig, node, **settings)
    reply = await (await rig.ask(headers=A)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "rate_limited")


async def use_up_the_day(rig: Rig) -> FakeNode:
    """Start a gateway five minutes before midnight, and use up what a key may have that day."""
    rig.clock = FakeClock(86_400 - 300.0)  # every second in between is gone through
    node = await rig.node(slots=4)
    await start(rig, node, keys=DAILY)
    client, call = await rig.run(node, headers=A, max_tokens=10)
    await call.answer({**OK, "usage": {"prompt_tokens": 50, "completion_tokens": 50}})
    await client.reply()
    return node


def day_left_s(clock: FakeClock) -> int:
    now = clock.utc()
    return 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)


async def test_what_a_restart_remembers_of_a_day_is_not_told_as_the_next_day_s(rig: Rig) -> None:
    node = await use_up_the_day(rig)
    assert (await rig.get("/v1/usage")).json["data"]  # it is written
    await rig.gateway.stop(0.0)
    await start(rig, node, keys=DAILY)
    assert (await (await rig.ask(headers=A, max_tokens=10)).reply()).status == 429
    rig.clock.advance(day_left_s(rig.clock) + 61.0)  # told again before the database is asked again
    _, call = await rig.run(node, headers=A, max_tokens=10)
    await call.answer(OK)


async def test_a_day_ends_at_midnight(rig: Rig) -> None:
    node = await use_up_the_day(rig)
    reply = await (await rig.ask(headers=A, max_tokens=10)).reply()
    left_s = day_left_s(rig.clock)
    assert abs(int(reply.headers["retry-after"]) - left_s) <= 1
    rig.clock.advance(left_s + 1.0)
    _, call = await rig.run(node, headers=A, max_tokens=10)
    await call.answer(OK)


async def test_openai_s_client_sees_the_headers_and_waits_as_it_is_told(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", requests_per_minute=1)], queue={"max_wait_seconds": 5.0})
    base = f"http://127.0.0.1:{rig.gateway.port}/v1"
    async with AsyncOpenAI(base_url=base, api_key=SECRETS["KEY_A"], max_retries=0) as client:
        asked = client.chat.completions.with_raw_response
        asking = asyncio.create_task(asked.create(model="m", messages=[]))
        await (await node.next_call()).answer({"id": "x", "choices": []})
        first = await asking
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        assert first.headers["x-ratelimit-reset-requests"] == "1m0s"
        with pytest.raises(RateLimitError, match="over its rate") as refused:
            await asked.create(model="m", messages=[])
        assert refused.value.response.headers["retry-after"] == "60"


async def test_a_stream_that_waits_for_its_rate_is_told_with_its_first_comment(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", requests_per_minute=2)])
    await rig.run(node, headers=A)
    await rig.run(node, headers=A)
    [late] = await rig.line_up(1, headers=A, stream=True)
    rig.clock.advance(15.0)
    head = await late.head()
    assert head.headers["x-ratelimit-limit-requests"] == "2"
    rig.clock.advance(15.1)
    call = await node.next_call()
    await answer(call)


async def test_reload_changes_limits_of_those_who_wait(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", requests_per_minute=2)])
    await rig.run(node, headers=A)
    await rig.run(node, headers=A)
    [late] = await rig.line_up(1, headers=A)
    reply = await reload(rig, keys=[key("a"), key("admin", admin=True)])
    assert reply.json["changed"] == ["keys.a"]
    await (await node.next_call()).answer(OK)
    assert (await late.reply()).status == 200


async def test_prompts_of_sessions_count(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", requests_per_minute=2)])
    await rig.run(node, headers=A)
    client = await rig.client()
    await client.post("/session", {"model": "m"}, A)
    session = (await client.reply()).json["sessionId"]
    await client.post(f"/session/{session}/prompt", {"prompt": "hi"}, A)
    assert (await client.reply()).status == 202
    await answer(await node.next_call())
    [late] = await rig.line_up(1, headers=A)
    rig.clock.advance(30.1)
    await (await node.next_call()).answer(OK)
    assert (await late.reply()).status == 200


def test_negative_limits_are_refused() -> None:
    block = {"name": "a", "key_env": "A"}
    assert parse_key({**block, "tokens_per_day": 5}).limits() == KeyLimits(tokens_per_day=5)
    for field in ("requests_per_minute", "tokens_per_minute", "tokens_per_day"):
        with pytest.raises(SettingsError, match=field):
            parse_key({**block, field: -1})
