"""Workers that die, databases that fail, the same thing asked fifty times: rows 47 to 53 and 63."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text, update

from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import JOBS, jobs
from forebay.storage import database as database_module
from forebay.storage.database import Database
from harness.postgres_server import PostgresServer

from ..jobs.job_steps import chat, job, post, submit, until
from .conftest import FIRST, SECOND, FaultRig, bearer, key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.jobs.job import StoredJob

OK: dict[str, object] = {"choices": []}
LEASE_S = 30.0


@pytest.fixture
def elsewhere(database_url: str) -> Iterator[JobStore]:
    """Another program on the same database."""
    database = Database(database_url, JOBS)
    database.open()
    yield JobStore(database)
    database.close()


def end_leases(store: JobStore) -> None:
    statement = update(jobs).where(jobs.c.status == "running").values(lease_until=1.0)
    store.database.write(lambda connection: connection.execute(statement).rowcount).result(10)


async def until_seen(rig: FaultRig, job_id: int, status: str) -> dict[str, Any]:
    """Like `until`, while time passes: what other programs did is seen now and then."""
    for _ in range(2000):
        reply = await rig.get(f"/jobs/{job_id}")
        if reply.status == 200 and reply.json["status"] == status:
            seen: dict[str, Any] = reply.json
            return seen
        rig.clock.advance(1.0)
    raise AssertionError(f"{job_id} is not {status}: {reply.json}")


async def taken_elsewhere(store: JobStore, worker: str) -> StoredJob:
    (taken,) = await asyncio.wrap_future(store.claim("model:m", worker, LEASE_S))
    return taken


async def ended(rig: FaultRig) -> None:
    """Wait until no request runs any more, jobs' included."""
    await rig.until(lambda: not rig.gateway.parts.relay.exchanges, "it still runs")


async def drained(rig: FaultRig, url: str, **settings: Any) -> Any:
    """Start a gateway whose node takes nothing yet."""
    node = await rig.node()
    await rig.start(node, jobs={"database": url, **settings})
    await rig.get("/admin/nodes/n1/drain", method="POST")
    return node


async def test_fault_47_a_job_whose_worker_died_runs_again_after_its_lease(
    rig: FaultRig, postgres_url: str
) -> None:
    node = await drained(rig, postgres_url, on_interrupt="retry")
    job_id = await submit(rig)
    dead = await taken_elsewhere(rig.gateway.parts.jobs.engine.store, "dead")
    assert dead.id == job_id
    await rig.get("/admin/nodes/n1/resume", method="POST")
    rig.clock.advance(5.0)
    assert (await job(rig, job_id))["status"] == "running"  # its lease has not ended
    end_leases(rig.gateway.parts.jobs.engine.store)
    arriving = asyncio.ensure_future(node.next_call())
    while not arriving.done():  # until someone has looked for ended leases
        rig.clock.advance(1.0)
        await rig.queue()
    call = arriving.result()
    await call.answer({"result": 2})
    done = await until(rig, job_id, "completed")
    assert (done["attempt"], done["result"]) == (2, {"result": 2})
    late = rig.gateway.parts.jobs.engine.store.complete(dead, '"from the dead"')
    assert not await asyncio.wrap_future(late)
    assert (await job(rig, job_id))["result"] == {"result": 2}


async def test_fault_48_what_a_worker_says_after_its_lease_is_refused(
    rig: FaultRig, postgres_url: str
) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"database": postgres_url, "on_interrupt": "retry"})
    job_id = await submit(rig)
    call = await node.next_call()
    store = rig.gateway.parts.jobs.engine.store
    end_leases(store)  # as if we had been frozen
    how = Recovery(retry=True, attempts=3, expired_only=True)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    assert await asyncio.wrap_future(store.recover(how)) == 1
    other = await taken_elsewhere(store, "other")
    await call.answer({"from": "the late one"})
    await ended(rig)
    assert await asyncio.wrap_future(store.complete(other, '{"from":"the other"}'))
    done = await until(rig, job_id, "completed")
    assert done["result"] == {"from": "the other"}
    assert done["attempt"] == 2


async def test_fault_49_a_job_that_kills_its_workers_becomes_a_dead_letter(
    rig: FaultRig, postgres_url: str
) -> None:
    node = await drained(rig, postgres_url, on_interrupt="retry", attempts=3)
    job_id = await submit(rig)
    store = rig.gateway.parts.jobs.engine.store
    how = Recovery(retry=True, attempts=3, expired_only=True)
    for worker in ("w1", "w2", "w3"):
        await taken_elsewhere(store, worker)
        end_leases(store)
        await asyncio.wrap_future(store.recover(how))
    dead = await job(rig, job_id)
    assert (dead["status"], dead["error_code"], dead["attempt"]) == ("failed", "dead_letter", 3)
    await rig.get("/admin/nodes/n1/resume", method="POST")
    following = await submit(rig, chat(2))
    await (await node.next_call()).answer(OK)
    await until(rig, following, "completed")
    assert len(node.calls) == 1


async def test_fault_50_a_result_outlives_a_database_that_is_away(
    rig: FaultRig, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_MS", 10)
    node = await rig.node()
    await rig.start(node, jobs={"database": sqlite_url})
    job_id = await submit(rig)
    call = await node.next_call()
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # nobody else may write now
    await call.answer({"worth": "keeping"})
    await ended(rig)
    refused = await post(rig, chat(2))
    assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable")
    assert (await rig.get("/health")).status == 200
    assert (await job(rig, job_id))["status"] == "running"
    other.execute("ROLLBACK")
    other.close()
    done = await until_seen(rig, job_id, "completed")
    assert done["result"] == {"worth": "keeping"}
    assert len(node.calls) == 1


async def test_fault_50_jobs_outlive_a_crash_and_restart_of_postgresql(rig: FaultRig) -> None:
    database = PostgresServer()
    rig.stack.callback(database.stop)
    await asyncio.to_thread(database.start)
    node = await rig.node()
    await rig.start(node, jobs={"database": database.url})
    ids = [await submit(rig, chat(n)) for n in range(4)]
    call = await node.next_call()
    await asyncio.to_thread(database.crash)
    await call.answer({"worth": "keeping"})
    await ended(rig)
    refused = await post(rig, chat(9))
    assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable")
    assert (await rig.get("/health")).status == 200
    node.automatic = lambda call: call.answer(OK)  # before it is back: a job may start at once
    await asyncio.to_thread(database.restart)
    for job_id in ids:
        await until_seen(rig, job_id, "completed")
    assert (await job(rig, ids[0]))["result"] == {"worth": "keeping"}
    assert len(node.calls) == 4  # each once


async def test_fault_51_a_full_disk_is_said_and_takes_nothing_that_was_accepted(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await submit(rig, chat(1))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    store = rig.gateway.parts.jobs.engine.store
    pages = "PRAGMA page_count"
    count = store.database.write(lambda c: c.exec_driver_sql(pages).scalar_one()).result(10)
    full = text(f"PRAGMA max_page_count = {count}")  # SQLite then says what it says of a full disk
    store.database.write(lambda c: c.execute(full).scalar_one()).result(10)
    large = chat(2)
    large["params"]["messages"][0]["content"] = "x" * 200_000
    refused = await post(rig, large)
    assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable")
    assert [row["id"] for row in (await rig.get("/jobs")).json["data"]] == [first]
    again = await submit(rig, large)  # there is room again, and nothing of the first try
    await (await node.next_call()).answer(OK)
    await until(rig, again, "completed")


async def test_fault_52_fifty_at_once_with_one_key_are_one_job(
    rig: FaultRig, database_url: str
) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"database": database_url})
    replies = await asyncio.gather(*(post(rig, chat(n, idempotency_key="once")) for n in range(50)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.json["id"] for reply in replies}) == 1
    assert sum(reply.json["is_new"] for reply in replies) == 1
    await (await node.next_call()).answer(OK)
    await until(rig, replies[0].json["id"], "completed")
    assert len(node.calls) == 1


@pytest.mark.parametrize(("ahead", "status"), [(1, 202), (2, 503)])
async def test_fault_53_one_schema_ahead_is_used_and_two_are_refused(
    rig: FaultRig, database_url: str, elsewhere: JobStore, ahead: int, status: int
) -> None:
    newer = update(JOBS.version_table).values(version=JOBS.version + ahead)
    elsewhere.database.write(lambda c: c.execute(newer).rowcount).result(10)
    node = await rig.node()
    await rig.start(node, jobs={"database": database_url})
    reply = await post(rig, chat())
    assert reply.status == status
    if status == 202:
        await (await node.next_call()).answer(OK)
        await until(rig, reply.json["id"], "completed")
    else:
        assert reply.json["error"]["code"] == "store_unavailable"


async def test_fault_63_the_jobs_of_another_key_are_not_there(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, keys=[key("first"), key("second")])
    job_id = (await post(rig, chat(), bearer(FIRST))).json["id"]
    call = await node.next_call()
    for path, method in (
        (f"/jobs/{job_id}", "GET"),
        (f"/jobs/{job_id}", "DELETE"),
        (f"/jobs/{job_id}/retry", "POST"),
        (f"/jobs/{job_id}/events", "GET"),
    ):
        theirs = await rig.get(path, bearer(SECOND), method)
        nobodys = await rig.get(path.replace(str(job_id), "999"), bearer(SECOND), method)
        assert (theirs.status, nobodys.status) == (404, 404)
        assert theirs.body.replace(str(job_id).encode(), b"999") == nobodys.body
    await call.answer(OK)
    for _ in range(2000):
        seen = await rig.get(f"/jobs/{job_id}", bearer(FIRST))
        if seen.json["status"] == "completed":
            break
    assert seen.json["status"] == "completed"
