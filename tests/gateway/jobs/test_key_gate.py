"""One gate before everything that runs in a key's name: is it in force, and has it room?"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from forebay.jobs.job import NewJob

from ..conftest import OK
from ..hot.test_users_and_keys import ADMIN, A, key, start
from ..records.test_made_keys import made, revoke
from ..routes.test_batches import create
from ..routes.test_batches import until as until_batch
from ..sessions.session_steps import Http, answer, follow, new_session
from ..test_reload import reload
from .job_steps import chat, post, until
from .test_job_rates import lines

if TYPE_CHECKING:
    from forebay.jobs.batches.files import Files
    from forebay.testing import Call, FakeNode, RawClient

    from ..conftest import Rig

REVOKED = "its key was revoked"
SHORT = {"max_wait_seconds": 5.0}
WAITS_S = 8.0
"""Longer than anything else may wait in a queue with these settings."""


async def submit(rig: Rig, headers: dict[str, str], number: int = 0, **more: Any) -> int:
    reply = await post(rig, chat(number, **more), headers)
    assert reply.status == 202, reply.json
    return int(reply.json["id"])


async def prompted(rig: Rig, headers: dict[str, str], *texts: str) -> tuple[str, list[str]]:
    """Open a session and post prompts to it; return its id and theirs."""
    session = await new_session(rig, headers)
    said = [await Http(rig).prompt(session, headers, prompt=text) for text in texts]
    return session, [one.body["promptId"] for one in said]


def told_of(files: Files, name: str) -> list[str]:
    """Return what a file of errors, which only its owner could ask for, says of each line."""
    with files.read(name) as file:
        return [json.loads(line)["error"]["message"] for line in file]


async def words(call: Call) -> str:
    return str(json.loads(call.body)["messages"][-1]["content"])


async def is_next(rig: Rig, node: FakeNode, running: Call, clients: list[RawClient]) -> Call:
    """End what runs; return a live call of the admin's, which must be the next on the node."""
    client = await rig.ask(headers=ADMIN, mine=True)
    await running.answer(OK)
    call = await node.next_call()
    assert json.loads(call.body).get("mine"), "another one started"
    clients.append(client)
    return call


async def test_what_a_revoked_key_has_queued_ends_as_cancelled_with_the_reason(
    rig: Rig,
) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    _, running = await rig.run(node, headers=ADMIN)
    jobs = [await submit(rig, ann, number) for number in range(3)]
    batch = await create(rig, lines("ann", 3), ann)
    await until_batch(rig, batch["id"], "in_progress")
    session, prompts = await prompted(rig, ann, "one", "two")
    assert (await revoke(rig, "ann")).status == 204
    for number in jobs:
        seen = await until(rig, number, "cancelled")
        assert (seen["error"], seen["started_at"]) == (REVOKED, None)
    shown = await until_batch(rig, batch["id"], "cancelled")
    files = rig.gateway.parts.jobs.engine.files
    assert await asyncio.to_thread(told_of, files, shown["error_file_id"]) == [REVOKED] * 3
    events = await follow(rig, session, ADMIN)
    for prompt in prompts:
        end = await events.end_of(prompt)
        assert (end["type"], end["error"]["code"], end["error"]["message"]) == (
            "turn_error", "cancelled", REVOKED
        )  # fmt: skip
    await (await is_next(rig, node, running, [])).answer(OK)
    assert len(node.calls) == 2


async def test_what_is_found_queued_of_a_revoked_key_ends_as_well(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    _, running = await rig.run(node, headers=ADMIN)
    await submit(rig, ann)
    (owner,) = rig.gateway.parts.keys._by_owner.keys() - {"admin"}
    await revoke(rig, "ann")
    engine = rig.gateway.parts.jobs.engine
    left = NewJob("chat", '{"model":"m"}', 9, "model:m", "m", owner=owner)  # by another gateway
    (added,) = await asyncio.wrap_future(engine.store.add([left]))
    engine.keys_changed()
    assert (await until(rig, added.id, "cancelled"))["error"] == REVOKED
    await running.answer(OK)


async def test_what_runs_when_its_key_is_revoked_ends_by_itself(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    number = await submit(rig, ann)
    call = await node.next_call()
    batch = await create(rig, lines("ann", 2), ann)
    line_calls = [await node.next_call() for _ in range(2)]
    await revoke(rig, "ann")
    for one in (call, *line_calls):
        await one.answer(OK)
    await until(rig, number, "completed")
    shown = await until_batch(rig, batch["id"], "cancelled")
    assert shown["request_counts"]["completed"] == 2


async def test_max_running_counts_live_calls_jobs_and_prompts_together(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", max_running=2)], queue=SHORT)
    jobs = [await submit(rig, A, number) for number in range(3)]
    first, second = await node.next_call(), await node.next_call()
    for _ in range(2000):
        seen = await rig.get(f"/jobs/{jobs[2]}")
        if seen.json["stage"]:
            break
    assert seen.json["stage"] == "waits until another request of its key ends (max_running)"
    refused = await (await rig.ask(headers=A)).reply()
    assert (refused.status, refused.json["error"]["code"]) == (429, "user_queue_full")
    _, (prompt,) = await prompted(rig, A, "mine")
    shown = await rig.get(f"/v1/queue/{prompt}", A)
    assert shown.json["reason_code"] == "key"
    rig.clock.advance(WAITS_S)  # a prompt does not fail for it
    other, _ = await rig.run(node, headers=ADMIN)
    await first.answer(OK)
    third = await node.next_call()
    assert await words(third) == "mine"  # prompts go before jobs
    await answer(third)
    fourth = await node.next_call()
    assert await words(fourth) == "hello 2"
    await second.answer(OK)
    client, live = await rig.run(node, headers=A)
    assert (await (await rig.ask(headers=A)).reply()).status == 429
    for call in (fourth, live):
        await call.answer(OK)
    assert (await client.reply()).status == 200
    await until(rig, jobs[2], "completed")
    other.close()


async def test_more_prompts_than_may_run_wait_at_the_head_of_their_sessions(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", max_running=1)], queue=SHORT)
    sessions = [await prompted(rig, A, f"p{number}") for number in range(4)]
    rig.clock.advance(WAITS_S)
    heard: list[str] = []
    for _ in sessions:
        call = await node.next_call()
        assert len(node.calls) == len(heard) + 1
        heard.append(await words(call))
        await answer(call)
    assert sorted(heard) == ["p0", "p1", "p2", "p3"]


async def test_the_work_of_a_key_that_is_missing_waits_and_goes_on_when_it_is_back(
    rig: Rig,
) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[key("a")], queue=SHORT)
    _, running = await rig.run(node, headers=ADMIN)
    number = await submit(rig, A)
    session, (prompt,) = await prompted(rig, A, "mine")
    await reload(rig, keys=[key("admin", admin=True)])
    clients: list[RawClient] = []
    call = await is_next(rig, node, running, clients)
    rig.clock.advance(WAITS_S)
    call = await is_next(rig, node, call, clients)
    assert (await rig.get(f"/jobs/{number}")).json["status"] == "queued"
    await reload(rig, keys=[key("a"), key("admin", admin=True)])
    await call.answer(OK)
    call = await node.next_call()
    assert await words(call) == "mine"
    await answer(call)
    assert (await (await follow(rig, session, A)).end_of(prompt))["type"] == "turn_complete"
    call = await node.next_call()
    await call.answer(OK)
    await until(rig, number, "completed")


async def test_the_events_of_a_job_end_for_a_reader_whose_key_is_revoked(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    number = await submit(rig, ann)
    call = await node.next_call()
    readers = []
    for headers in (ann, ADMIN):
        client = await rig.client()
        await client.get(f"/jobs/{number}/events", headers)
        assert (await client.head()).status == 200
        assert await client.chunk() is not None
        readers.append(client)
    await revoke(rig, "ann")
    assert await readers[0].chunk() is None
    await call.answer(OK)
    said = b""
    while (piece := await readers[1].chunk()) is not None:
        said += piece
    assert b"event: completed" in said


async def test_what_a_renewed_key_has_queued_goes_on(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    _, running = await rig.run(node, headers=ADMIN)
    number = await submit(rig, ann)
    _, (_,) = await prompted(rig, ann, "mine")
    digest = {"key_sha256": "0" * 64}
    renewed = await rig.get(
        "/admin/keys/ann/renew", method="POST", body=json.dumps(digest).encode()
    )
    assert renewed.status == 200, renewed.body
    await running.answer(OK)
    await answer(await node.next_call())
    await (await node.next_call()).answer(OK)
    await until(rig, number, "completed")


async def test_owners_of_jobs_take_turns(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[key("a")])
    _, call = await rig.run(node, headers=ADMIN)
    for number in range(3):
        await submit(rig, A, number)
    await submit(rig, ADMIN, 9)
    heard = []
    for _ in range(4):
        await call.answer(OK)
        call = await node.next_call()
        heard.append(await words(call))
    await call.answer(OK)
    assert heard == ["hello 0", "hello 9", "hello 1", "hello 2"]
