"""What a hostile review of sessions found, where it has no file of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ..jobs.job_steps import ENVIRON, bearer
from .session_steps import (
    Http,
    answer,
    delta,
    finish,
    follow,
    look,
    new_session,
    post,
    prompt,
    started,
    until_turn,
)

if TYPE_CHECKING:
    from forebay.sessions.session import Session
    from forebay.sessions.sessions import Sessions
    from forebay.testing import FakeNode, RawClient

    from ..conftest import Rig

OK: dict[str, object] = {"choices": []}


def all_sessions(rig: Rig) -> Sessions:
    sessions = rig.gateway.parts.sessions._opening.value
    assert sessions is not None
    return sessions


def held(rig: Rig, session: str) -> Session:
    return all_sessions(rig)._sessions[session]


# -- readers


@pytest.mark.parametrize("waits", [False, True], ids=["runs at once", "has waited"])
async def test_a_reader_that_keeps_up_is_told_of_the_end_of_an_answer_larger_than_the_ring(
    rig: Rig, waits: bool
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    before = await prompt(rig, session) if waits else None
    prompt_id = await prompt(rig, session)
    if before is not None:
        await answer(await node.next_call())
        await events.end_of(before)
    call = await node.next_call()
    await call.start_stream()
    for number in range(40):
        await call.chunk(delta(f"{number:04}" + "x" * 10_000))
        await events.until("text_delta", prompt_id)
    await finish(call)
    end = await events.end_of(prompt_id)
    assert (end["type"], len(end["text"])) == ("turn_complete", 40 * 10_004)
    assert not {"gap", "stream_closed", "slow_reader"} & {event["type"] for event in events.seen}


async def test_of_many_readers_that_come_at_once_no_more_are_let_in_than_may_be(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    clients = [await rig.client() for _ in range(60)]
    for client in clients:
        await client.get(f"/session/{session}/events")
    statuses = [(await client.head()).status for client in clients]
    assert statuses.count(200) == 16
    assert set(statuses) == {200, 503}
    for client, status in zip(clients, statuses, strict=True):
        if status == 200:
            client.abort()
    for _ in range(2000):
        await rig.queue()
        if not held(rig, session).log.readers:
            break
    await follow(rig, session)


async def test_a_session_that_was_followed_is_not_idle_the_moment_its_reader_leaves(
    rig: Rig,
) -> None:
    await started(rig, sessions={"idle_seconds": 600})  # ten looks
    session = await new_session(rig)
    events = await follow(rig, session)
    await follows_for(rig, 700)
    events._client.abort()
    for _ in range(2000):
        await rig.queue()
        if not held(rig, session).log.readers:
            break
    await follows_for(rig, 530)
    assert (await rig.get(f"/session/{session}")).status == 200
    await follows_for(rig, 140)
    assert (await rig.get(f"/session/{session}")).status == 404


async def follows_for(rig: Rig, seconds: int) -> None:
    for _ in range(seconds // 10):
        rig.clock.advance(10.0)
        await rig.queue()


async def test_the_stream_of_a_key_that_is_revoked_ends(rig: Rig) -> None:
    keys = [
        {"name": "a", "key_env": "A"},
        {"name": "b", "key_env": "B"},
        {"name": "root", "key_env": "ROOT", "admin": True},
    ]
    await started(rig, keys=keys, environ=ENVIRON)
    revoked = await follow(rig, await new_session(rig, bearer("A")), bearer("A"))
    mine = await new_session(rig, bearer("B"))
    kept = await follow(rig, mine, bearer("B"))
    rig.given["keys"] = keys[1:]
    assert (await rig.get("/admin/reload", bearer("ROOT"), "POST")).status == 200
    await revoked.to_the_end()
    assert (await Http(rig).ask("DELETE", f"/session/{mine}", bearer("B"))).ok
    assert (await kept.to_the_end())[-1]["type"] == "session_closed"


# -- branches whose clients leave


async def branching(rig: Rig, session: str) -> RawClient:
    """Ask for a branch, which has to wait."""
    before = len(list(held(rig, session).queue.branches()))
    client = await rig.client()
    await client.post(f"/session/{session}/branch", {})
    for _ in range(2000):
        await rig.queue()
        if len(list(held(rig, session).queue.branches())) > before:
            return client
    raise AssertionError("the branch does not wait")


async def with_branches(rig: Rig, count: int) -> tuple[FakeNode, str, list[RawClient]]:
    node = await started(rig)
    session = await new_session(rig)
    await prompt(rig, session)
    await node.next_call()
    return node, session, [await branching(rig, session) for _ in range(count)]


async def cancelled_branch(rig: Rig, session: str) -> asyncio.Task[Any]:
    """Have the task of a branch cancelled, as happens when its client leaves, and not yet run."""
    sessions, one = all_sessions(rig), held(rig, session)
    task = asyncio.ensure_future(sessions.branch(one))
    await asyncio.sleep(0)
    assert list(one.queue.branches())
    task.cancel()
    return task


async def test_a_session_closes_in_the_moment_in_which_the_client_of_a_branch_leaves(
    rig: Rig,
) -> None:
    _, session, _ = await with_branches(rig, 0)
    sessions, one = all_sessions(rig), held(rig, session)
    task = await cancelled_branch(rig, session)
    await sessions.close(one, "deleted")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await rig.get(f"/session/{session}")).status == 404
    assert (await Http(rig).new(model="m")).number == 201


async def test_the_gateway_stops_in_the_moment_in_which_the_client_of_a_branch_leaves(
    rig: Rig,
) -> None:
    _, session, _ = await with_branches(rig, 0)
    events = await follow(rig, session)
    task = await cancelled_branch(rig, session)
    await rig.gateway.stop(0.0)
    with pytest.raises(asyncio.CancelledError):
        await task
    kinds = [event["type"] for event in await events.to_the_end()]
    assert kinds[-2:] == ["turn_error", "stream_closed"]


@pytest.mark.parametrize("turns", range(6))
async def test_clients_of_branches_may_leave_just_before_a_session_is_deleted(
    rig: Rig, turns: int
) -> None:
    _, session, clients = await with_branches(rig, 4)
    deleting = await rig.client()
    for client in clients:
        client.abort()
    for _ in range(turns):
        await asyncio.sleep(0)
    await deleting.request("DELETE", f"/session/{session}")
    assert (await deleting.reply()).status == 200
    assert (await rig.get(f"/session/{session}")).status == 404


async def test_branches_whose_clients_left_take_no_place_from_others(rig: Rig) -> None:
    node, session, clients = await with_branches(rig, 16)
    for client in clients:
        client.abort()
    for _ in range(2000):
        await rig.queue()
        if not list(held(rig, session).queue.branches()):
            break
    last = await branching(rig, session)
    await answer(node.calls[0])
    assert (await last.reply()).status == 201


async def test_branches_that_wait_and_leave_give_their_places_among_the_sessions_back(
    rig: Rig,
) -> None:
    node = await started(rig, sessions={"max_sessions": 3})
    session = await new_session(rig)
    await prompt(rig, session)
    await node.next_call()
    for _ in range(4):
        client = await branching(rig, session)
        client.abort()
        for _ in range(2000):
            await rig.queue()
            if not list(held(rig, session).queue.branches()):
                break
    assert (await Http(rig).new(model="m")).number == 201


# -- what callers send


async def test_options_nested_beyond_reason_are_refused_and_cost_no_place(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 5})
    for depth in (940, 930, 900, 945, 960, 940):
        deep = b"[" * depth + b"]" * depth
        body = b'{"model": "m", "options": {"logit_bias": %b}}' % deep
        assert (await post(rig, "/session", body)).status == 400
    for _ in range(5):
        assert (await Http(rig).new(model="m")).number == 201


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
    await call.answer(OK)
    shown = (await client.reply()).headers["x-request-id"]
    assert shown != given or not given.startswith("prm_")
    assert shown


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


@pytest.mark.parametrize("call_id", [{"a": 1}, True, False, [1]])
async def test_a_call_whose_id_is_none_is_answered_with_null(rig: Rig, call_id: object) -> None:
    await started(rig)
    call = {"jsonrpc": "2.0", "id": call_id, "method": "session/new", "params": {"model": "m"}}
    reply = await post(rig, "/acp", call)
    assert (reply.status, reply.json["id"]) == (200, None)
    assert reply.json["error"]["code"] == -32600


@pytest.mark.parametrize("call_id", [b"1" + b"0" * 40, b"1e400", b"-1" + b"0" * 400])
async def test_a_call_with_a_huge_number_as_its_id_is_answered(rig: Rig, call_id: bytes) -> None:
    await started(rig)
    body = b'{"jsonrpc": "2.0", "id": %b, "method": "session/fly"}' % call_id
    reply = await post(rig, "/acp", body)
    assert reply.status == 200
    assert reply.json["error"]["code"] in (-32601, -32600, -32700)


# -- the model's context


async def test_history_that_does_not_fit_now_is_sent_again_where_it_does(rig: Rig) -> None:
    node = await started(rig, context=2000)
    session = await new_session(rig)
    events = await follow(rig, session)
    for number in range(5):
        prompt_id = await prompt(rig, session, f"{number} " + "question " * 100)
        await answer(await node.next_call(), "word " * 200)
        await events.end_of(prompt_id)
    prompt_id = await prompt(rig, session, "small")
    call = await node.next_call()
    assert 1 < len(call.json["messages"]) < 11
    await answer(call)
    await events.end_of(prompt_id)
    node.context = 100_000
    for _ in range(200):
        if (await look(rig, f"/session/{session}"))["contextTokens"] == 100_000:
            break
        rig.clock.advance(0.5)
    await prompt(rig, session, "large")
    assert len((await node.next_call()).json["messages"]) == 13
    assert len((await look(rig, f"/session/{session}/messages"))["messages"]) == 12


async def test_a_model_that_ollama_has_unloaded_keeps_the_context_that_it_had(rig: Rig) -> None:
    node = await rig.node(kind="ollama", context=32_768)
    await rig.start(node)
    session = await new_session(rig)
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 32_768
    node.loaded = ()
    probes = node.probes
    while node.probes < probes + 6:
        rig.clock.advance(5.0)
        await rig.queue()
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 32_768


async def test_the_place_of_a_session_is_free_after_every_failure(rig: Rig) -> None:
    node = await started(rig, sessions={"max_sessions": 2})
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    await (await node.next_call()).answer({"error": {"message": "no"}}, 400)
    await until_turn(rig, session, prompt_id, "failed")
    for _ in range(3):
        other = await new_session(rig)
        assert (await Http(rig).new(model="m")).code == "too_many_sessions"
        assert (await Http(rig).ask("DELETE", f"/session/{other}")).ok
