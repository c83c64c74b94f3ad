"""A prompt is a request in the one queue, like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..jobs.job_steps import ENVIRON, bearer
from .session_steps import Http, answer, delta, follow, look, new_session, prompt, started, turn

if TYPE_CHECKING:
    from ..conftest import Rig


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
    assert rig.gateway.parts.relay.freed is None


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
    for _ in range(2000):
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


async def test_no_request_can_take_the_id_of_a_prompt(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    first, second = await prompt(rig, session, "one"), await prompt(rig, session, "two")
    call = await node.next_call()
    (live,) = await rig.line_up(1, headers={"x-request-id": second})
    await answer(call, "uno")
    assert (await events.end_of(first))["text"] == "uno"
    for _ in range(2):
        call = await node.next_call()
        if call.json["messages"]:
            await answer(call, "dos")
        else:
            assert call.headers["x-request-id"] != second
            await call.answer({"choices": [{"message": {"content": "live"}}]})
    assert (await events.end_of(second))["text"] == "dos"
    reply = await live.reply()
    assert (reply.status, reply.json["choices"][0]["message"]["content"]) == (200, "live")
    assert reply.headers["x-request-id"] not in ("", second)


@pytest.mark.parametrize("given", ["prm_", "prm_x", "PRM_x", "prm_" + "a" * 32])
async def test_an_id_that_looks_like_a_prompts_is_replaced(rig: Rig, given: str) -> None:
    node = await started(rig)
    client, call = await rig.run(node, headers={"x-request-id": given})
    await call.answer({"choices": []})
    shown = (await client.reply()).headers["x-request-id"]
    assert shown != given or not given.startswith("prm_")
    assert shown
