"""Sessions as their callers see them: ownership, bounds, events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ..jobs.job_steps import ENVIRON, KEYS, bearer
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
    started,
)

if TYPE_CHECKING:
    from ..conftest import Rig


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


async def test_a_prompt_whose_key_is_gone_from_the_settings_waits_until_it_is_back(
    rig: Rig,
) -> None:
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
    last = (await events.to_the_end())[-1]
    assert (last["type"], last["reason"]) == ("stream_closed", "unauthorized")
    events = await follow(rig, session, bearer("ROOT"))
    await answer(call)
    assert (await events.end_of(ids[0]))["type"] == "turn_complete"  # what runs may finish
    rig.clock.advance(120.0)  # longer than anything waits in the queue
    seen = await look(rig, f"/session/{session}/turns/{ids[1]}", bearer("ROOT"))
    assert seen["status"] == "queued"
    rig.given["keys"] = KEYS
    assert (await rig.get("/admin/reload", bearer("ROOT"), "POST")).status == 200
    await answer(await node.next_call())
    assert (await events.end_of(ids[1]))["type"] == "turn_complete"


async def test_a_key_may_use_its_models_only(rig: Rig) -> None:
    keys: list[dict[str, Any]] = [{"name": "a", "key_env": "A", "models": ["other"]}]
    await started(rig, keys=keys, environ=ENVIRON)
    said = await Http(rig).new(bearer("A"), model="m")
    assert (said.number, said.code, said.body["param"]) == (403, "forbidden", "model")


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
    for _ in range(2000):
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
    for _ in range(2000):
        if (said := await Http(rig).new(model="m")).ok:
            break
    assert said.ok
    await answer(call)
