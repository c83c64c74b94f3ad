"""Those who follow the events of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..jobs.job_steps import ENVIRON, bearer
from .session_steps import Http, answer, delta, finish, follow, held, new_session, prompt, started

if TYPE_CHECKING:
    from ..conftest import Rig


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


async def test_too_many_readers_of_one_session_are_refused(rig: Rig) -> None:
    await started(rig)
    session = await new_session(rig)
    for _ in range(16):
        await follow(rig, session)
    said = await Http(rig).ask("GET", f"/session/{session}/events")
    assert (said.number, said.code) == (503, "too_many_connections")


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
