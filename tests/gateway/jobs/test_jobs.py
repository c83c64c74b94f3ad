"""Jobs through the gateway: they fill idle slots, give way to whoever is live, and survive."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from ..conftest import OK
from .job_steps import chat, job, post, submit, until

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_job_runs_and_its_result_is_the_nodes_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    reply = await post(rig, chat(1, job_id=7))
    assert reply.status == 202
    assert reply.json == {"id": reply.json["id"], "status": "queued", "is_new": True}
    call = await node.next_call()
    assert call.path == "/v1/chat/completions"
    assert call.json == chat(1)["params"]
    assert (await job(rig, reply.json["id"]))["status"] == "running"
    await call.answer({"choices": [{"text": "hi"}]})
    done = await until(rig, reply.json["id"], "completed")
    assert done["result"] == {"choices": [{"text": "hi"}]}
    assert (done["type"], done["job_id"], done["model"], done["attempt"]) == ("chat", 7, "m", 1)
    assert done["created_at"] <= done["started_at"] <= done["finished_at"]
    assert (done["error"], done["params"]) == (None, chat(1)["params"])


@pytest.mark.parametrize(
    ("task_type", "path"),
    [
        ("completion", "/v1/completions"),
        ("embedding", "/v1/embeddings"),
        ("response", "/v1/responses"),
    ],
)
async def test_every_built_in_type_has_its_route(rig: Rig, task_type: str, path: str) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig, {"type": task_type, "params": {"model": "m", "input": "x"}})
    call = await node.next_call()
    assert call.path == path
    await call.answer(OK)
    await until(rig, job_id, "completed")


async def test_the_model_may_be_given_beside_the_params(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig, {"type": "chat", "model": "m", "params": {"messages": []}})
    call = await node.next_call()
    assert call.json == {"model": "m", "messages": []}
    await call.answer(OK)
    await until(rig, job_id, "completed")


async def test_jobs_use_every_idle_slot_and_no_more(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    ids = [await submit(rig, chat(n)) for n in range(5)]
    calls = [await node.next_call() for _ in range(3)]
    seen = await rig.queue()
    assert (seen["processing"], seen["processing_jobs"]) == (0, 3)  # jobs are not requests
    states = [(await job(rig, job_id))["status"] for job_id in ids]
    assert states == ["running"] * 3 + ["queued"] * 2
    await calls[1].answer(OK)
    fourth = await node.next_call()
    assert fourth.json["messages"][0]["content"] == "hello 3"
    for call in (calls[0], calls[2], fourth):
        await call.answer(OK)
    await (await node.next_call()).answer(OK)
    for job_id in ids:
        await until(rig, job_id, "completed")


async def test_a_freed_slot_goes_to_a_live_request_before_any_job(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    first, second = await submit(rig, chat(1)), await submit(rig, chat(2))
    running = await node.next_call()
    (client,) = await rig.line_up(1)
    await running.answer(OK)
    live = await node.next_call()
    assert live.json["messages"] == []
    assert (await job(rig, second))["status"] == "queued"
    await live.answer(OK)
    assert (await client.reply()).status == 200
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    await until(rig, second, "completed")


async def test_jobs_do_not_crowd_the_live_queue(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 1})
    for n in range(6):
        await submit(rig, chat(n))
    running = await node.next_call()
    (client,) = await rig.line_up(1)
    seen = await rig.queue()
    assert (seen["waiting"], seen["rejected_total"]) == (1, 0)
    await running.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200


async def test_jobs_keep_their_order_and_the_urgent_go_first(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await submit(rig, chat(0))
    first = await node.next_call()
    for n, priority in ((1, "low"), (2, "normal"), (3, "high"), (4, "high")):
        await submit(rig, chat(n, priority=priority))
    await first.answer(OK)
    order = []
    for _ in range(4):
        call = await node.next_call()
        order.append(call.json["messages"][0]["content"])
        await call.answer(OK)
    assert order == ["hello 3", "hello 4", "hello 2", "hello 1"]


async def test_jobs_run_model_by_model_the_loaded_one_first(rig: Rig) -> None:
    node = await rig.node(models=("big", "m"), kind="ollama")
    node.loaded = ["m"]
    await rig.start(node)
    client, running = await rig.run(node)  # somebody chats with m
    for n in range(3):
        await submit(rig, chat(n, model="big"))
        await submit(rig, chat(n, model="m"))
    await running.answer(OK)
    assert (await client.reply()).status == 200
    order = []
    for _ in range(6):
        arriving = asyncio.ensure_future(node.next_call())
        while not arriving.done():  # a model in memory keeps its place for a while
            rig.clock.advance(0.1)  # slowly: the database takes real time, and its jobs come first
            await rig.queue()
        call = arriving.result()
        order.append(call.json["model"])
        await call.answer(OK)
    assert order == ["m", "m", "m", "big", "big", "big"]


async def test_the_same_job_twice_is_one(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    first = (await post(rig, chat(1))).json
    again = (await post(rig, chat(1))).json
    assert (again["id"], again["is_new"]) == (first["id"], False)
    keyed = (await post(rig, chat(2, idempotency_key="k"))).json
    assert (await post(rig, chat(3, idempotency_key="k"))).json["id"] == keyed["id"]
    await (await node.next_call()).answer(OK)
    await (await node.next_call()).answer(OK)
    await until(rig, keyed["id"], "completed")


async def test_a_queued_job_that_is_cancelled_never_runs(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    first, second = await submit(rig, chat(1)), await submit(rig, chat(2))
    call = await node.next_call()
    reply = await rig.get(f"/jobs/{second}", method="DELETE")
    assert (reply.status, reply.json) == (200, {"id": second, "status": "cancelled"})
    await call.answer(OK)
    await until(rig, first, "completed")
    assert (await job(rig, second))["status"] == "cancelled"
    assert len(node.calls) == 1


async def test_a_running_job_that_is_cancelled_is_aborted_at_the_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig)
    call = await node.next_call()
    assert (await rig.get(f"/jobs/{job_id}", method="DELETE")).status == 200
    await call.gone()
    assert (await job(rig, job_id))["status"] == "cancelled"
    following = await submit(rig, chat(2))  # the slot is free
    await (await node.next_call()).answer(OK)
    await until(rig, following, "completed")


async def test_what_a_node_refuses_fails_with_its_words_and_its_answer(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig)
    answer = {"error": {"message": "too long"}}
    await (await node.next_call()).answer(answer, 400)
    failed = await until(rig, job_id, "failed")
    assert failed["error"] == "the node answered 400: too long"
    assert failed["error_code"] == "node_refused"
    assert failed["result"] == answer


async def test_a_job_whose_node_dies_runs_elsewhere(rig: Rig) -> None:
    nodes = [await rig.node(), await rig.node()]
    await rig.start(*nodes)
    job_id = await submit(rig)
    (await nodes[0].next_call()).reset()
    await (await nodes[1].next_call()).answer(OK)
    done = await until(rig, job_id, "completed")
    assert done["attempt"] == 1  # a retry of the request is not one of the job


async def test_a_failed_job_can_be_tried_again(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig)
    await (await node.next_call()).answer({"error": "no"}, 400)
    await until(rig, job_id, "failed")
    reply = await rig.get(f"/jobs/{job_id}/retry", method="POST")
    assert (reply.status, reply.json) == (202, {"id": job_id, "status": "queued"})
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    again = await rig.get(f"/jobs/{job_id}/retry", method="POST")
    assert (again.status, again.json["error"]["code"]) == (409, "conflict")
    assert (await rig.get(f"/jobs/{job_id}", method="DELETE")).status == 409


async def test_jobs_of_a_model_whose_nodes_are_down_wait_for_one(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    job_id = await submit(rig)
    await rig.queue()
    assert (await job(rig, job_id))["status"] == "queued"
    await rig.get("/admin/nodes/n1/resume", method="POST")
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")


async def test_beyond_the_depth_a_job_is_refused_and_log_and_row_say_why(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"max_queue_depth": 2})
    for n in range(3):
        await submit(rig, chat(n))
        if n == 0:
            running = await node.next_call()
    reply = await post(rig, chat(3))
    assert (reply.status, reply.json["error"]["code"]) == (429, "job_queue_full")
    assert int(reply.headers["retry-after"]) >= 1
    row = await job(rig, reply.json["error"]["id"])
    assert (row["status"], row["error"]) == ("failed", "Queue depth limit reached")
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warned == [
        f"the queue of task type 'chat' is full (2): job {row['id']} stored as failed"
    ]
    await running.answer(OK)
    for _ in range(2):
        await (await node.next_call()).answer(OK)


async def test_a_restart_fails_what_ran_and_goes_on_with_what_was_queued(rig: Rig) -> None:
    node = await rig.node()
    gateway = await rig.start(node, server={"shutdown_seconds": 0})
    first, second = await submit(rig, chat(1)), await submit(rig, chat(2))
    await node.next_call()
    await gateway.stop(0.0)
    await rig.start(node)
    call = await node.next_call()  # a stop gives back what was not done; only a crash fails it
    assert call.json["messages"][0]["content"] == "hello 1"
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await until(rig, first, "completed"))["attempt"] == 1
    await until(rig, second, "completed")


async def test_aliases_and_fallbacks_hold_for_jobs_too(rig: Rig) -> None:
    node = await rig.node(models=("m", "spare"))
    await rig.start(node, models={"aliases": {"fast": "m"}, "fallbacks": {"gone": ["spare"]}})
    first = await submit(rig, chat(1, model="fast"))
    call = await node.next_call()
    assert call.json["model"] == "m"
    await call.answer(OK)
    assert (await until(rig, first, "completed"))["model"] == "fast"
    second = await submit(rig, chat(2, model="gone"))
    call = await node.next_call()
    assert call.json["model"] == "spare"
    await call.answer(OK)
    await until(rig, second, "completed")


async def test_a_refused_job_keeps_no_large_params_and_is_not_tried_again(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"max_queue_depth": 1})
    await submit(rig, chat(0))
    running = await node.next_call()
    await submit(rig, chat(1))
    large = chat(2)
    large["params"]["messages"][0]["content"] = "x" * 100_000
    for body, kept in ((large, None), (chat(3), chat(3)["params"])):
        reply = await post(rig, body)
        assert reply.status == 429
        assert (await job(rig, reply.json["error"]["id"]))["params"] == kept
    refused = (await post(rig, large)).json["error"]["id"]
    await running.answer(OK)
    await (await node.next_call()).answer(OK)
    retried = await rig.get(f"/jobs/{refused}/retry", method="POST")
    assert (retried.status, retried.json["error"]["code"]) == (409, "conflict")
    assert "submit it again" in retried.json["error"]["message"]


@pytest.mark.parametrize("given", ["%00", "x" * 300, ""])
async def test_an_odd_type_to_list_is_refused(rig: Rig, given: str) -> None:
    await rig.start(await rig.node())
    reply = await rig.get(f"/jobs?type={given}")
    assert (reply.status, reply.json["error"]["param"]) == (400, "type")
