"""Sessions as their callers see them: bad input, events, ownership, limits, the one queue."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from .job_steps import ENVIRON, KEYS, bearer
from .session_steps import (
    Http,
    Rpc,
    answer,
    delta,
    finish,
    follow,
    look,
    new_session,
    prompt,
    turn,
)

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from .conftest import Rig


async def started(rig: Rig, **settings: Any) -> FakeNode:
    node = await rig.node(context=settings.pop("context", 0), slots=settings.pop("slots", 1))
    await rig.start(node, **settings)
    return node


async def post(rig: Rig, path: str, body: object, headers: dict[str, str] | None = None) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await rig.get(path, headers, "POST", body=raw)


# -- bad input


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_request", "body"),
        (b"[]", 400, "invalid_request", "body"),
        (b"{not json", 400, "invalid_request", "body"),
        ({}, 400, "invalid_request", "model"),
        ({"model": 5}, 400, "invalid_request", "model"),
        ({"model": ""}, 400, "invalid_request", "model"),
        ({"model": "m\x00"}, 400, "invalid_request", "model"),
        ({"model": "nobody-has-it"}, 404, "model_not_found", "model"),
        ({"model": "m", "system": 5}, 400, "invalid_request", "system"),
        ({"model": "m", "sistem": "x"}, 400, "invalid_request", "sistem"),
        ({"model": "m", "maxTokens": 0}, 400, "invalid_request", "maxTokens"),
        ({"model": "m", "maxTokens": 1.5}, 400, "invalid_request", "maxTokens"),
        ({"model": "m", "options": {"stream": False}}, 400, "invalid_request", "options.stream"),
        ({"model": "m", "options": {"stop": "x" * 20_000}}, 400, "invalid_request", "options"),
    ],
)
async def test_a_session_that_makes_no_sense_is_refused_by_its_field(
    rig: Rig, body: object, status: int, code: str, param: str
) -> None:
    await started(rig)
    reply = await post(rig, "/session", body)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "  \n"}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "robot", "content": "b"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "b"}]}, "messages[0].role"),
        ({"messages": "hi"}, "messages"),
        ({"prompt": "a", "promt": "b"}, "promt"),
        ({"prompt": "a", "deadlineMs": 0}, "deadlineMs"),
        ({"prompt": "a", "deadlineMs": -1}, "deadlineMs"),
        ({"prompt": "a", "deadlineMs": "soon"}, "deadlineMs"),
        ({"prompt": "a", "deadlineMs": True}, "deadlineMs"),
        ({"prompt": "a", "deadlineMs": [1]}, "deadlineMs"),
    ],
)
async def test_a_malformed_prompt_is_refused_by_its_field_over_both_wires(
    rig: Rig, fields: dict[str, Any], param: str
) -> None:
    await started(rig)
    session = await new_session(rig)
    over_http, over_rpc = (
        await Http(rig).prompt(session, **fields),
        await Rpc(rig).prompt(session, **fields),
    )
    assert (over_http.number, over_http.code, over_http.body["param"]) == (
        400, "invalid_request", param,
    )  # fmt: skip
    assert (over_rpc.number, over_rpc.body["param"]) == (-32602, param)
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0


@pytest.mark.parametrize("number", ["1e999", "NaN", "Infinity", "-Infinity"])
async def test_a_deadline_that_is_no_number_of_json_is_refused(rig: Rig, number: str) -> None:
    await started(rig)
    session = await new_session(rig)
    body = b'{"prompt": "a", "deadlineMs": %b}' % number.encode()
    reply = await post(rig, f"/session/{session}/prompt", body)
    assert reply.status == 400, reply.json


async def test_pictures_are_refused_clearly_and_text_parts_are_taken(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    said = await Http(rig).prompt(session, messages=[{"role": "user", "content": [picture]}])
    assert (said.number, said.code, said.body["param"]) == (
        400,
        "unsupported",
        "messages[0].content",
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (await Http(rig).prompt(session, messages=[{"role": "user", "content": parts}])).ok
    assert (await node.next_call()).json["messages"][-1]["content"] == "ab"


async def test_a_body_that_is_too_large_is_refused(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    reply = await post(rig, f"/session/{session}/prompt", {"prompt": "x" * 2_100_000})
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""), ("DELETE", ""), ("POST", "/prompt"), ("GET", "/events"), ("GET", "/messages"),
        ("GET", "/pending-prompts"), ("DELETE", "/pending-prompts/p"), ("POST", "/cancel"),
        ("POST", "/branch"), ("GET", "/turns/p"),
    ],
)  # fmt: skip
async def test_an_unknown_session_is_404_everywhere(rig: Rig, method: str, path: str) -> None:
    await started(rig)
    said = await Http(rig).ask(method, f"/session/ses_nobody{path}", None, {"prompt": "x"})
    assert (said.number, said.code) == (404, "session_not_found")


async def test_an_unknown_session_is_an_error_over_json_rpc(rig: Rig) -> None:
    await started(rig)
    for ask in (Rpc(rig).prompt, Rpc(rig).cancel, Rpc(rig).branch):
        said = await ask("ses_nobody")
        assert (said.number, said.code) == (-32000, "session_not_found")


async def test_an_unknown_prompt_is_404(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    for method, path in (("GET", "turns"), ("DELETE", "pending-prompts")):
        said = await Http(rig).ask(method, f"/session/{session}/{path}/prm_nobody")
        assert (said.number, said.code) == (404, "prompt_not_found")


async def test_a_closing_session_is_409_with_its_code(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    held = await rig.gateway.parts.sessions.ready()
    held.find(session, None).closing = True  # as while its rows are being deleted
    for said in (
        await Http(rig).prompt(session, prompt="hi"),
        await Http(rig).branch(session),
        await Http(rig).ask("DELETE", f"/session/{session}"),
    ):
        assert (said.number, said.code) == (409, "session_closing")
    over_rpc = await Rpc(rig).prompt(session, prompt="hi")
    assert (over_rpc.number, over_rpc.code) == (-32000, "session_closing")


async def test_closing_comes_before_what_is_wrong_with_the_prompt_and_both_before_the_cap(
    rig: Rig,
) -> None:
    node = await started(rig, sessions={"max_pending_prompts": 1})
    session = await new_session(rig)
    await prompt(rig, session)
    await node.next_call()
    assert (await Http(rig).prompt(session, prompt="")).number == 400
    held = await rig.gateway.parts.sessions.ready()
    held.find(session, None).closing = True
    assert (await Http(rig).prompt(session, prompt="")).number == 409


# -- /acp


@pytest.mark.parametrize(
    ("body", "code", "call_id"),
    [
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b"[]", -32600, None),
        (b"5", -32600, None),
        ({"id": 1, "method": "session/new"}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600, 1),
        ({"jsonrpc": "2.0", "id": "x", "method": "session/fly"}, -32601, "x"),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": [1]}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}, -32602, 1),
    ],
)
async def test_json_rpc_errors_have_the_standard_numbers(
    rig: Rig, body: object, code: int, call_id: object
) -> None:
    await started(rig)
    reply = await post(rig, "/acp", body)
    assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (200, code, call_id)


async def test_a_batch_is_answered_call_by_call_and_notifications_are_not(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    base = {"jsonrpc": "2.0", "method": "session/prompt"}
    reply = await post(
        rig,
        "/acp",
        [
            {**base, "id": "a", "params": {"sessionId": session, "prompt": "first"}},
            {**base, "params": {"sessionId": session, "prompt": "a notification"}},
            {**base, "id": "b", "params": {"sessionId": session}},
            {"jsonrpc": "2.0", "id": "c", "method": "nope"},
        ],
    )
    answers = {one["id"]: one for one in reply.json}
    assert set(answers) == {"a", "b", "c"}
    assert answers["a"]["result"]["promptId"]
    assert (answers["b"]["error"]["code"], answers["c"]["error"]["code"]) == (-32602, -32601)
    listed = (await look(rig, f"/session/{session}/pending-prompts"))["prompts"]
    assert [one["text"] for one in listed] == ["first", "a notification"]
    await answer(await node.next_call())
    await answer(await node.next_call())


async def test_notifications_alone_are_answered_with_nothing(rig: Rig) -> None:
    await started(rig)
    call = {"jsonrpc": "2.0", "method": "session/new", "params": {"model": "m"}}
    for body in (call, [call, call]):
        reply = await post(rig, "/acp", body)
        assert (reply.status, reply.body) == (204, b"")
    assert "forebay_sessions 3.0" in (await rig.get("/metrics")).body.decode()


async def test_a_batch_is_bounded(rig: Rig) -> None:
    await started(rig)
    reply = await post(rig, "/acp", [{"jsonrpc": "2.0", "id": 1, "method": "x"}] * 65)
    assert reply.json["error"]["code"] == -32600


async def test_json_rpc_needs_a_key_like_everything_else(rig: Rig) -> None:
    await started(rig, keys=KEYS, environ=ENVIRON)
    reply = await post(rig, "/acp", {"jsonrpc": "2.0", "id": 1, "method": "session/new"})
    assert reply.status == 401


# -- whose it is (fault 63)


async def test_another_keys_session_is_404_and_an_admin_sees_it(rig: Rig) -> None:
    await started(rig, keys=KEYS, environ=ENVIRON)
    session = await new_session(rig, bearer("A"))
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", "")):
        said = await Http(rig).ask(method, f"/session/{session}{path}", bearer("B"))
        assert (said.number, said.code) == (404, "session_not_found")
    said = await Http(rig).prompt(session, bearer("B"), prompt="mine?")
    assert said.code == "session_not_found"
    assert (await Rpc(rig).prompt(session, bearer("B"), prompt="x")).code == "session_not_found"
    assert (await look(rig, f"/session/{session}", bearer("ROOT")))["sessionId"] == session
    assert (await look(rig, f"/session/{session}", bearer("A")))["pendingCount"] == 0


async def test_a_key_that_is_revoked_while_its_prompt_waits_runs_nothing(rig: Rig) -> None:
    node = await started(rig, keys=KEYS, environ=ENVIRON)
    session = await new_session(rig, bearer("A"))
    events = await follow(rig, session, bearer("A"))
    ids = []
    for text in ("one", "two"):
        said = await Http(rig).prompt(session, bearer("A"), prompt=text)
        ids.append(said.body["promptId"])
    call = await node.next_call()
    rig.given["keys"] = KEYS[1:]
    assert (await rig.get("/admin/reload", bearer("ROOT"), "POST")).status == 200
    await answer(call)
    assert (await events.end_of(ids[0]))["type"] == "turn_complete"  # what runs may finish
    assert (await events.end_of(ids[1]))["error"]["code"] == "unauthorized"
    assert len(node.calls) == 1


async def test_a_key_may_use_its_models_only(rig: Rig) -> None:
    keys: list[dict[str, Any]] = [{"name": "a", "key_env": "A", "models": ["other"]}]
    await started(rig, keys=keys, environ=ENVIRON)
    said = await Http(rig).new(bearer("A"), model="m")
    assert (said.number, said.code, said.body["param"]) == (403, "forbidden", "model")


# -- bounds


async def test_sessions_are_capped_in_number_and_a_deleted_one_makes_room(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 2})
    first, _ = await new_session(rig), await new_session(rig)
    full = await Http(rig).new(model="m")
    assert (full.number, full.code) == (503, "too_many_sessions")
    assert int(full.headers["retry-after"]) >= 1
    assert (await Rpc(rig).new(model="m")).code == "too_many_sessions"
    assert (await Http(rig).branch(first)).code == "too_many_sessions"
    assert (await Http(rig).ask("DELETE", f"/session/{first}")).ok
    await new_session(rig)


async def test_sessions_that_race_do_not_pass_the_cap(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 3})
    said = await asyncio.gather(*(Http(rig).new(model="m") for _ in range(20)))
    assert sum(one.ok for one in said) == 3


async def test_a_session_with_nothing_going_on_ends_after_a_while(rig: Rig) -> None:
    node = await started(rig, sessions={"idle_seconds": 600})
    idle, busy, watched = [await new_session(rig) for _ in range(3)]
    await prompt(rig, busy)
    await node.next_call()
    watching = await follow(rig, watched)
    rig.clock.advance(599.0)
    assert (await rig.get(f"/session/{idle}")).status == 200
    rig.clock.advance(61.0)
    for _ in range(200):
        if (await rig.get(f"/session/{idle}")).status == 404:
            break
    assert (await rig.get(f"/session/{idle}")).status == 404
    for kept in (busy, watched):
        assert (await rig.get(f"/session/{kept}")).status == 200
    assert watching.seen == []


async def test_too_many_readers_of_one_session_are_refused(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    for _ in range(16):
        await follow(rig, session)
    said = await Http(rig).ask("GET", f"/session/{session}/events")
    assert (said.number, said.code) == (503, "too_many_connections")


async def test_a_prompt_that_cannot_fit_into_the_context_is_413(rig: Rig) -> None:
    node = await started(rig, context=512)
    session = await new_session(rig)
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 512
    said = await Http(rig).prompt(session, prompt="word " * 1000)
    assert (said.number, said.code) == (413, "history_too_large")
    assert (await Rpc(rig).prompt(session, prompt="word " * 1000)).number == -32602
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0
    await prompt(rig, session, "word " * 200)
    await answer(await node.next_call())


async def test_old_turns_are_dropped_when_the_context_is_full(rig: Rig) -> None:
    node = await started(rig, context=512)
    session = await new_session(rig, system="be brief")
    events = await follow(rig, session)
    sent = []
    for number in range(6):
        prompt_id = await prompt(rig, session, f"{number} " + "word " * 60)
        call = await node.next_call()
        sent.append(call.json["messages"])
        await call.start_stream()
        await call.chunk(delta(f"answer {number}"))
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()
        await events.end_of(prompt_id)
    last = sent[-1]
    assert last[0] == {"role": "system", "content": "be brief"}
    assert last[-1]["content"].startswith("5 ")
    assert 3 <= len(last) < 2 + 2 * 5
    assert last[1]["content"].startswith(f"{(12 - len(last)) // 2} ")
    seen = await look(rig, f"/session/{session}")
    assert seen["droppedTurns"] == (12 - len(last)) // 2


# -- events


async def test_events_are_replayed_after_the_last_one_seen(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    await answer(await node.next_call(), "a", "b", "c")
    events = await follow(rig, session)
    end = await events.end_of(prompt_id)
    middle = events.seen[1]["id"]
    for query, headers in ((f"?lastEventId={middle}", None), ("", {"last-event-id": str(middle)})):
        again = await follow(rig, session, headers, query)
        assert (await again.end_of(prompt_id))["id"] == end["id"]
        assert again.seen[0]["id"] == middle + 1


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "9" * 30])
async def test_an_event_number_that_makes_no_sense_is_refused(rig: Rig, number: str) -> None:
    await started(rig)
    session = await new_session(rig)
    said = await Http(rig).ask("GET", f"/session/{session}/events", {"last-event-id": number})
    assert (said.number, said.body["param"]) == (400, "Last-Event-ID")


async def test_text_is_told_as_it_comes(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await call.start_stream()
    for text in ("One", " two", " three"):
        await call.chunk(delta(text))
        assert (await events.until("text_delta"))["text"] == text
    await finish(call)
    end = await events.end_of(prompt_id)
    assert (end["text"], end["finishReason"], end["node"]) == ("One two three", "stop", "n1")
    assert end["usage"] == {"promptTokens": 5, "completionTokens": 2}


async def test_heartbeats_keep_a_silent_stream_awake(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    client = await rig.client()
    await client.get(f"/session/{session}/events")
    await client.head()
    assert await client.chunk() == b"retry: 1000\n\n"
    await rig.queue()
    rig.clock.advance(15.0)
    assert await client.chunk() == b": heartbeat\n\n"


async def test_deleting_a_session_ends_everything_in_it(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    ids = [await prompt(rig, session) for _ in range(3)]
    call = await node.next_call()
    said = await Http(rig).ask("DELETE", f"/session/{session}")
    assert said.body == {"sessionId": session, "state": "closed"}
    await call.gone()
    seen = await events.to_the_end()
    ends = [event for event in seen if event["type"] == "turn_error"]
    assert [end["promptId"] for end in ends] == ids
    assert {end["error"]["code"] for end in ends} == {"session_closed"}
    assert (seen[-1]["type"], seen[-1]["reason"]) == ("session_closed", "deleted")
    assert (await rig.get(f"/session/{session}")).status == 404


async def test_a_branch_and_its_origin_go_their_own_ways(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig, system="be kind", maxTokens=9, options={"temperature": 0})
    events = await follow(rig, session)
    first = await prompt(rig, session, "one")
    await answer(await node.next_call(), "uno")
    await events.end_of(first)
    branch = (await Http(rig).branch(session)).body["sessionId"]
    await prompt(rig, branch, "two")
    call = await node.next_call()
    assert [m["content"] for m in call.json["messages"]] == ["be kind", "one", "uno", "two"]
    assert (call.json["max_tokens"], call.json["temperature"]) == (9, 0)
    await answer(call)
    assert len((await look(rig, f"/session/{session}/messages"))["messages"]) == 2


async def test_a_branch_whose_client_leaves_gives_up_its_turn_and_its_place(rig: Rig) -> None:
    node = await started(rig, sessions={"max_sessions": 2})
    session = await new_session(rig)
    await prompt(rig, session)
    call = await node.next_call()
    client = await rig.client()
    await client.post(f"/session/{session}/branch", {})
    await rig.queue()
    assert (await Http(rig).new(model="m")).code == "too_many_sessions"
    client.abort()
    for _ in range(200):
        if (said := await Http(rig).new(model="m")).ok:
            break
    assert said.ok
    await answer(call)


# -- a request in the one queue


async def test_a_prompt_is_asked_of_the_node_as_any_client_would(rig: Rig) -> None:
    node = await started(rig, models={"aliases": {"nice": "m"}})
    session = await new_session(rig, model="nice", system="be kind")
    said = await Http(rig).prompt(session, {"traceparent": "00-ab-cd-01"}, prompt="hi")
    call = await node.next_call()
    assert call.path == "/v1/chat/completions"
    assert call.json["model"] == "m"
    assert call.json["messages"] == [
        {"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"},
    ]  # fmt: skip
    assert call.json["stream"] is True
    assert call.json["stream_options"] == {"include_usage": True}
    assert call.headers["x-request-id"] == said.body["promptId"]
    assert call.headers["traceparent"] == "00-ab-cd-01"
    await answer(call)


async def test_a_prompt_can_be_looked_at_and_cancelled_like_any_request(rig: Rig) -> None:
    node = await started(rig)
    await rig.run(node)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    seen = await look(rig, f"/v1/queue/{prompt_id}")
    assert (seen["state"], seen["position"]) == ("waiting", 1)
    added = await events.until("pending_prompt_added")
    assert (added["position"], added["waitsFor"]) == (1, "queue")
    assert (await rig.get(f"/v1/queue/{prompt_id}", method="DELETE")).status == 200
    end = await events.end_of(prompt_id)
    assert (end["status"], end["error"]["code"]) == ("cancelled", "cancelled")


async def test_an_urgent_prompt_goes_before_others_that_wait(rig: Rig) -> None:
    node = await started(rig)
    _, running = await rig.run(node)
    await rig.line_up(1)
    session = await new_session(rig)
    await Http(rig).prompt(session, {"x-forebay-priority": "high"}, prompt="urgent")
    await rig.wait_until("waiting", 2)
    await running.answer({"choices": []})
    assert (await node.next_call()).json["messages"][-1]["content"] == "urgent"


async def test_a_prompt_waits_in_the_queue_no_longer_than_any_request(rig: Rig) -> None:
    node = await started(rig)
    await rig.run(node)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    rig.clock.advance(60.0)
    end = await events.end_of(prompt_id)
    assert end["error"]["code"] == "queue_timeout"


async def test_prompts_never_time_out_behind_their_own_session(rig: Rig) -> None:
    node = await started(rig, queue={"run_seconds": 1000, "first_byte_seconds": 1000})
    session = await new_session(rig)
    events = await follow(rig, session)
    first, second = await prompt(rig, session), await prompt(rig, session)
    call = await node.next_call()
    rig.clock.advance(500.0)
    await answer(call)
    await events.end_of(first)
    await answer(await node.next_call(), "patience")
    assert (await events.end_of(second))["text"] == "patience"


async def test_a_prompt_that_finds_the_queue_full_waits_at_the_head_and_is_not_counted_as_refused(
    rig: Rig,
) -> None:
    node = await started(rig, queue={"max_size": 1})
    _, running = await rig.run(node)
    (waiting,) = await rig.line_up(1)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    await events.until("pending_prompt_added")
    queue = await rig.queue()
    assert (queue["waiting"], queue["rejected_total"]) == (1, 0)
    assert (await turn(rig, session, prompt_id))["status"] == "queued"
    await running.answer({"choices": []})
    await (await node.next_call()).answer({"choices": []})
    assert (await waiting.reply()).status == 200
    await answer(await node.next_call(), "at last")
    assert (await events.end_of(prompt_id))["text"] == "at last"
    text = (await rig.get("/metrics")).body.decode()
    assert 'outcome="queue_full"' not in text
    assert rig.gateway.parts.relay.left is None


async def test_prompts_that_wait_for_room_enter_by_urgency_and_then_by_age(rig: Rig) -> None:
    node = await started(rig, queue={"max_size": 1})
    _, running = await rig.run(node)
    await rig.line_up(1)
    sessions = [await new_session(rig) for _ in range(3)]
    for session, priority in zip(sessions, ("low", "normal", "normal"), strict=True):
        said = await Http(rig).prompt(session, {"x-forebay-priority": priority}, prompt=session)
        assert said.ok
    await running.answer({"choices": []})
    await (await node.next_call()).answer({"choices": []})
    order = []
    for _ in sessions:
        call = await node.next_call()
        order.append(call.json["messages"][-1]["content"])
        await answer(call)
    assert order == [sessions[1], sessions[2], sessions[0]]


async def test_with_the_queue_off_prompts_wait_in_their_sessions(rig: Rig) -> None:
    node = await started(rig, queue={"enabled": False})
    _, running = await rig.run(node)
    session = await new_session(rig)
    events = await follow(rig, session)
    ids = [await prompt(rig, session) for _ in range(2)]
    await running.answer({"choices": []})
    for prompt_id in ids:
        await answer(await node.next_call())
        assert (await events.end_of(prompt_id))["type"] == "turn_complete"


async def test_a_user_at_its_own_bound_waits_without_holding_up_others(rig: Rig) -> None:
    keys: list[dict[str, Any]] = [
        {"name": "a", "key_env": "A", "max_running": 1},
        {"name": "b", "key_env": "B"},
    ]
    node = await started(rig, keys=keys, environ=ENVIRON, slots=2)
    mine, other = await new_session(rig, bearer("A")), await new_session(rig, bearer("B"))
    bound = await new_session(rig, bearer("A"))
    await Http(rig).prompt(mine, bearer("A"), prompt="first")
    call = await node.next_call()
    await Http(rig).prompt(bound, bearer("A"), prompt="second of A")
    await Http(rig).prompt(other, bearer("B"), prompt="of B")
    assert (await node.next_call()).json["messages"][-1]["content"] == "of B"
    await answer(call)
    assert (await node.next_call()).json["messages"][-1]["content"] == "second of A"


async def test_a_prompt_survives_a_node_that_dies_before_it_answers(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    (await first.next_call()).reset()
    await answer(await second.next_call(), "from the other")
    end = await events.end_of(prompt_id)
    assert (end["text"], end["node"]) == ("from the other", "n2")


async def test_a_node_that_dies_in_mid_answer_ends_the_turn_with_the_error(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("half"))
    await events.until("text_delta")
    call.reset()
    assert (await events.end_of(prompt_id))["error"]["code"] == "node_failed"
    assert (await look(rig, f"/session/{session}/messages"))["messages"] == []


async def test_what_a_node_refuses_is_told_in_its_own_words(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    error = {"error": {"message": "the request exceeds the context size"}}
    await (await node.next_call()).answer(error, 400)
    said = (await events.end_of(prompt_id))["error"]
    assert said["code"] == "node_refused"
    assert "exceeds the context size" in said["message"]


async def test_nobody_needs_to_listen_for_a_prompt_to_run(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    await answer(await node.next_call(), "unheard")
    for _ in range(200):
        seen = await turn(rig, session, prompt_id)
        if seen["status"] == "completed":
            break
    assert (seen["text"], seen["error"]) == ("unheard", None)
    assert seen["usage"] == {"promptTokens": 5, "completionTokens": 2}


async def test_outcomes_are_counted(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    first = await prompt(rig, session)
    await answer(await node.next_call())
    await events.end_of(first)
    second = await prompt(rig, session)
    await node.next_call()
    await Http(rig).cancel(session)
    await events.end_of(second)
    text = (await rig.get("/metrics")).body.decode()
    assert 'forebay_session_prompts_total{outcome="completed"} 1.0' in text
    assert 'forebay_session_prompts_total{outcome="cancelled"} 1.0' in text
    assert 'forebay_requests_total{outcome="served",route="/session/{id}/prompt"} 1.0' in text
