"""Sessions that continue others, and clients of theirs that leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from .session_steps import (
    Http,
    all_sessions,
    answer,
    follow,
    held,
    look,
    new_session,
    prompt,
    started,
)

if TYPE_CHECKING:
    from forebay.testing import FakeNode, RawClient

    from ..conftest import Rig


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
