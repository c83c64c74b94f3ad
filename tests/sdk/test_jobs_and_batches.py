"""Durable work, batches and looking in, through the real gateway."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.sdk import (
    BadAnswer,
    Batch,
    BatchFailed,
    GatewayError,
    Job,
    NotFound,
    Refused,
    WaitTooLong,
)

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import Call

    from .conftest import Place
    from .scripted_server import ScriptedServer

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
DONE: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": "done"}}]}


async def answer(call: Call) -> None:
    await call.answer(DONE)


async def test_a_job_is_submitted_followed_and_read(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    job = await client.submit("chat", CHAT, job_id=7, priority="high")
    assert (job.status, job.is_new, job.type, job.ended) == ("queued", True, "chat", False)
    seen: list[Job] = []
    waiting = asyncio.ensure_future(client.wait_job(job.id, on_change=seen.append))
    call = await node.next_call()
    again = await client.submit("chat", CHAT, job_id=7, priority="high")
    assert (again.id, again.is_new) == (job.id, False)
    await call.answer(DONE)
    ended = await waiting
    assert (ended.status, ended.result, ended.job_id) == ("completed", DONE, 7)
    assert ended.params == CHAT
    assert [one.status for one in seen][-1] == "completed"
    assert [one.id for one in await client.jobs(status="completed", task_type="chat")] == [job.id]
    assert await client.jobs(status="failed") == []


async def test_a_job_is_cancelled_and_let_run_again(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    job = await client.submit("chat", CHAT)
    call = await node.next_call()
    assert (await client.cancel_job(job.id)).status == "cancelled"
    await call.gone()
    node.automatic = answer
    assert (await client.retry_job(job.id)).status in ("queued", "running", "completed")
    assert (await client.wait_job(job.id)).status == "completed"
    with pytest.raises(NotFound):
        await client.wait_job(999)


async def test_a_wait_has_a_limit_and_the_job_goes_on(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    job = await client.submit("chat", CHAT)
    call = await node.next_call()
    with pytest.raises(WaitTooLong) as caught:
        await client.wait_job(job.id, timeout_s=0.01)
    assert isinstance(caught.value, TimeoutError)
    await call.answer(DONE)
    assert (await client.wait_job(job.id)).status == "completed"


async def test_where_the_events_fail_the_job_is_asked_for(
    place: Place, server: ScriptedServer
) -> None:
    client = await place.client(server.url)
    error = {"error": {"code": "store_unavailable", "message": "no"}}
    for _ in range(3):
        server.plan("GET", "/jobs/1/events", error, 503)
    server.plan("GET", "/jobs/1/events", b'data: {"id": 1, "status": "running"}\n\n')
    server.plan("GET", "/jobs/1/events", b"")
    server.plan("GET", "/jobs/1", {"id": 1, "status": "running"})
    server.plan("GET", "/jobs/1", {"id": 1, "status": "failed", "error": "why not"})
    job = await client.wait_job(1)
    assert (job.status, job.error) == ("failed", "why not")


async def test_a_gateway_that_stays_away_is_given_up(place: Place, server: ScriptedServer) -> None:
    client = await place.client(server.url)
    await server.go_away()
    with pytest.raises(Exception, match="no gateway answers"):
        await client.wait_job(1)
    assert place.pace.monotonic_s() >= 600
    await server.start()


# -- batches


async def test_bodies_become_a_batch_and_its_results(place: Place) -> None:
    node = await place.node()
    await place.start(node)

    async def obey(call: Call) -> None:
        if call.json["messages"] == "bad":
            await call.answer({"error": {"message": "no"}}, 400)
        else:
            await call.answer(DONE)

    node.automatic = obey
    client = await place.client()
    seen: list[Batch] = []
    bodies = [{**CHAT, "user": str(number)} for number in range(3)]
    bodies.append({**CHAT, "messages": "bad"})
    results = {
        result.custom_id: result async for result in client.batch(bodies, on_progress=seen.append)
    }
    assert sorted(results) == [f"request-{number}" for number in range(4)]
    assert results["request-0"].body == DONE
    assert results["request-0"].error is None
    assert results["request-3"].error is not None
    assert seen[-1].request_counts.completed == 3
    assert seen[-1].request_counts.failed == 1


async def test_a_file_of_lines_is_sent_as_it_is(place: Place, tmp_path: Path) -> None:
    node = await place.node()
    await place.start(node)
    node.automatic = answer
    client = await place.client()
    line = {"custom_id": "mine", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(line) + "\n")
    begun = await client.start_batch(path)
    ended = await client.wait_batch(begun.id)
    assert [result.custom_id async for result in client.batch_results(ended)] == ["mine"]
    assert ended.output_file_id is not None
    await client.delete_file(ended.output_file_id)
    with pytest.raises(NotFound):
        assert [result async for result in client.batch_results(ended)]
    with pytest.raises(Refused):
        await client.cancel_batch(begun.id)


async def test_a_batch_is_cancelled(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    begun = await client.start_batch([CHAT, CHAT])
    call = await node.next_call()
    await client.cancel_batch(begun.id)
    await call.gone()
    ended = await client.wait_batch(begun.id)
    assert ended.status == "cancelled"
    assert (await client.batch_state(begun.id)).ended
    errors = [result.error async for result in client.batch_results(ended)]
    assert [error["code"] for error in errors if error] == ["batch_cancelled"] * 2


async def test_input_that_is_refused_is_told_line_by_line(place: Place) -> None:
    await place.start(await place.node())
    client = await place.client()
    with pytest.raises(BatchFailed) as caught:
        async for _ in client.batch([CHAT, {"messages": []}]):
            pass
    assert caught.value.faults[0]["line"] == 2
    with pytest.raises(ValueError, match="requests: there"):
        await client.start_batch([])


async def test_results_that_are_cut_off_are_no_results(
    place: Place, server: ScriptedServer
) -> None:
    client = await place.client(server.url)
    server.plan("GET", "/v1/files/f/content", b'{"custom_id": "a"}\n{"custom')
    found = client.batch_results(Batch("b", "completed", output_file_id="f"))
    assert (await anext(found)).custom_id == "a"
    with pytest.raises(BadAnswer):
        await anext(found)


# -- looking in


async def test_the_line_the_models_and_the_limits_can_be_seen(place: Place) -> None:
    node = await place.node(models=("a", "b"))
    await place.start(node)
    client = await place.client()
    queue = await client.queue()
    assert (queue.waiting, queue.processing) == (0, 0)
    assert sorted(await client.models()) == ["a", "b"]
    assert (await client.health()).status == "ok"
    told = await client.capabilities()
    assert told.limits.queue_max_size == queue.max_size
    assert "high" in told.priorities
    with pytest.raises(NotFound):
        await client.queue("nobody")


async def test_requests_are_listed_one_by_one(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    asked = asyncio.ensure_future(client.chat("m", "Hello", user="alice"))
    call = await node.next_call()
    [running] = (await client.queue_requests(state="running", user="alice")).data
    assert (running.state, running.model, running.outcome) == ("running", "m", None)
    await call.start_stream()
    await call.chunk(b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n')
    await call.end()
    await asked
    page = await client.queue_requests(limit=1)
    assert [(row.id, row.outcome, row.status) for row in page.data] == [(running.id, "served", 200)]
    assert not page.has_more
    assert (await client.queue_requests(before=running.id)).data == ()


async def test_a_key_is_needed_where_there_are_keys(place: Place) -> None:
    node = await place.node()
    keys = [{"name": "k", "key_env": "K"}]
    await place.start(node, keys=keys, environ={"K": "secret-secret-secret"})
    with pytest.raises(GatewayError) as caught:
        await (await place.client()).queue()
    assert caught.value.status == 401
    known = await place.client(key="secret-secret-secret")
    asking = asyncio.ensure_future(known.chat("m", "hello"))
    call = await node.next_call()
    placed = await known.queue(call.headers["x-request-id"])
    assert (placed.state, placed.position) == ("running", None)
    await call.answer(DONE)
    assert (await asking).text == "done"
