"""What a review proved wrong with jobs, kept right."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DataError, OperationalError

from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

from ..conftest import OK
from .job_steps import chat, job, post, submit, until, until_metrics_say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conftest import Rig

LIMIT_S = 30.0  # only turns a hang into a failure; the store lives in real time


async def fill(rig: Rig, node: Any, **settings: Any) -> list[int]:
    """Start with a job that runs and some that are queued."""
    await rig.start(node, **settings)
    return [await submit(rig, chat(n)) for n in range(4)]


async def test_a_locked_database_does_not_hold_up_live_requests(rig: Rig, tmp_path: Any) -> None:
    node = await rig.node(slots=2)
    ids = await fill(rig, node)
    running = [await node.next_call() for _ in range(2)]
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    node.automatic = lambda call: call.answer(OK)
    for call in running:
        await call.answer(OK)
    for _ in range(6):  # while the lock lasts
        client = await rig.ask()
        assert (await client.reply()).status == 200
    other.execute("ROLLBACK")
    other.close()
    async with asyncio.timeout(LIMIT_S):
        for job_id in ids:
            while (await job(rig, job_id))["status"] != "completed":
                rig.clock.advance(1.0)


async def test_a_locked_table_does_not_hold_up_live_requests_either(
    rig: Rig, postgres_url: str
) -> None:
    node = await rig.node(slots=2)
    await fill(rig, node, jobs={"database": postgres_url})
    running = [await node.next_call() for _ in range(2)]
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    node.automatic = lambda call: call.answer(OK)
    with engine.connect() as connection:
        connection.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
        for call in running:
            await call.answer(OK)
        for _ in range(6):
            client = await rig.ask()
            assert (await client.reply()).status == 200
    engine.dispose()


def lose_answers(monkeypatch: pytest.MonkeyPatch, lost: Callable[[list[Any]], bool]) -> None:
    """Commit, and then say that the connection was lost, once for what `lost` chooses."""
    commit = Database._commit

    def broken(self: Database, engine: Any, works: list[Any]) -> list[Any]:
        results = commit(self, engine, works)
        if lost(results):
            monkeypatch.undo()
            raise OperationalError("", {}, Exception("the connection was lost"))
        return results

    monkeypatch.setattr(Database, "_commit", broken)


async def test_a_claim_whose_answer_was_lost_goes_back_to_its_place(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")

    def is_claim(results: list[Any]) -> bool:
        return any(isinstance(one, list) and one and hasattr(one[0], "fence") for one in results)

    lose_answers(monkeypatch, is_claim)
    job_id = await submit(rig, chat(1))
    await until(rig, job_id, "running")
    arriving = asyncio.ensure_future(node.next_call(30.0))
    while not arriving.done():  # two heartbeats, and the rest after the failure
        rig.clock.advance(5.0)
        await rig.queue()
    await arriving.result().answer(OK)
    done = await until(rig, job_id, "completed")
    assert done["attempt"] == 1
    assert len(node.calls) == 2


async def test_a_retry_during_a_delivery_is_told_of_too(rig: Rig) -> None:
    node, hook = await rig.node(), await rig.node()
    await rig.start(node, jobs={"webhook_url": hook.url})
    job_id = await submit(rig)
    call = await node.next_call()
    assert (await rig.get(f"/jobs/{job_id}", method="DELETE")).status == 200
    await call.gone()
    told = await hook.next_call()
    assert told.json["type"] == "job.cancelled"
    assert (await rig.get(f"/jobs/{job_id}/retry", method="POST")).status == 202
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    await told.answer({})
    again = await hook.next_call()
    assert again.json["type"] == "job.completed"
    await again.answer({})


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


async def test_lines_of_batches_are_not_counted_as_jobs(rig: Rig) -> None:
    node = await rig.node(slots=4)
    node.automatic = lambda call: call.answer(OK)
    await rig.start(node)
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}}
    data = b"".join(json.dumps({**line, "custom_id": str(n)}).encode() + b"\n" for n in range(20))
    form = (b'--B\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--B\r\n'
            b'content-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
            + data + b"\r\n--B--\r\n")  # fmt: skip
    headers = {"content-type": "multipart/form-data; boundary=B"}
    file = (await rig.get("/v1/files", headers, "POST", body=form)).json
    wanted = {"input_file_id": file["id"], "endpoint": line["url"], "completion_window": "24h"}
    body = json.dumps(wanted).encode()
    batch = (await rig.get("/v1/batches", {}, "POST", body=body)).json
    for _ in range(2000):
        seen = (await rig.get(f"/v1/batches/{batch['id']}")).json
        if seen["status"] == "completed":
            break
    assert seen["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    await submit(rig, chat(1))
    await until_metrics_say(rig, 'forebay_jobs{status="completed",type="chat"} 1.0')


@pytest.mark.parametrize("given", ["%00", "x" * 300, ""])
async def test_an_odd_type_to_list_is_refused(rig: Rig, given: str) -> None:
    await rig.start(await rig.node())
    reply = await rig.get(f"/jobs?type={given}")
    assert (reply.status, reply.json["error"]["param"]) == (400, "type")


def test_a_group_whose_database_is_away_fails_at_once(tmp_path: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/jobs.db", JOBS)
    database.open()
    asked: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def first(_: Any) -> None:
        entered.set()
        go_on.wait(10)

    def away(number: int) -> Callable[[Any], None]:
        def work(_: Any) -> None:
            asked.append(number)
            raise OperationalError("", {}, Exception("away"))

        return work

    blocker = database.write(first)
    assert entered.wait(10)
    futures = [database.write(away(n)) for n in range(50)]
    go_on.set()
    blocker.result(10)
    assert all(future.exception(10) is not None for future in futures)
    assert len(asked) < 10  # not each by itself
    database.close()


def test_closing_does_not_wait_for_a_database_that_hangs(tmp_path: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/jobs.db", JOBS)
    database.open()
    stuck = threading.Event()
    hanging = database.write(lambda _: stuck.wait(30))
    behind = database.write(lambda _: None)
    database.close(0.2)
    assert hanging.exception(10) is not None
    assert behind.exception(10) is not None
    stuck.set()


def test_the_file_of_prompts_is_its_owners_alone(tmp_path: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/jobs.db", JOBS)
    database.open()
    database.write(lambda _: None).result(10)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("jobs.db*")}
    database.close()
    assert set(modes.values()) == {0o600}, modes


async def test_a_bug_of_ours_fails_the_job_and_gives_the_slot_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    with monkeypatch.context() as patched:
        patched.setattr("forebay.jobs.idle.request.make_call", lambda *_: 1 / 0)
        job_id = await submit(rig, chat(1))
        failed = await until(rig, job_id, "failed")
    assert failed["error_code"] == "internal_error"
    following = await submit(rig, chat(2))
    await (await node.next_call()).answer(OK)
    await until(rig, following, "completed")


async def test_an_outcome_that_cannot_be_stored_fails_its_job_instead_of_being_tried_for_ever(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig, chat(1))
    call = await node.next_call()

    def refused(_: object) -> None:
        raise DataError("", {}, Exception("odd"))

    store = rig.gateway.parts.jobs.engine.store
    monkeypatch.setattr(store, "complete", lambda *_: store.database.write(refused))
    await call.answer(OK)
    failed = await until(rig, job_id, "failed")
    assert failed["error"].startswith("the outcome cannot be stored")
