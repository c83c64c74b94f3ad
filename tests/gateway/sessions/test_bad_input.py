"""Whatever makes no sense is refused by its field, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .session_steps import Http, Rpc, look, new_session, post, prompt, started

if TYPE_CHECKING:
    from ..conftest import Rig


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


async def test_options_nested_beyond_reason_are_refused_and_cost_no_place(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 5})
    for depth in (940, 930, 900, 945, 960, 940):
        deep = b"[" * depth + b"]" * depth
        body = b'{"model": "m", "options": {"logit_bias": %b}}' % deep
        assert (await post(rig, "/session", body)).status == 400
    for _ in range(5):
        assert (await Http(rig).new(model="m")).number == 201


async def test_a_system_prompt_that_can_never_fit_is_refused_at_once(rig: Rig) -> None:
    await started(rig, context=1000)
    said = await Http(rig).new(model="m", system="s" * 50_000)
    assert (said.number, said.code) == (413, "history_too_large")
    assert said.body["param"] == "system"
    assert (await Http(rig).new(model="m", system="be kind")).number == 201


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": ""}]])
async def test_a_last_message_that_says_nothing_is_refused(rig: Rig, content: object) -> None:
    node = await started(rig)
    session = await new_session(rig)
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": content}]
    said = await Http(rig).prompt(session, messages=messages)
    assert (said.number, said.code) == (400, "invalid_request")
    assert said.body["param"].startswith("messages[1]")
    assert not node.calls
