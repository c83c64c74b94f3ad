"""A database that hangs, or is locked: it refuses nothing, and does not answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, text

from forebay.gateway.http import store_timeout as store_answers
from forebay.gateway.jobs import engine

from ..conftest import OK
from ..jobs.job_steps import chat, job, post, submit, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from forebay.gateway.gateway import Gateway

    from ..conftest import Rig

LIMIT_S = 30.0


@contextmanager
def hanging(gateway: Gateway) -> Iterator[None]:
    """Have every thread of the job database wait, as for a server that was paused."""
    database, paused = gateway.parts.jobs.engine.store.database, threading.Barrier(4)
    goes_on = threading.Event()

    def wait(_: object) -> None:
        paused.wait(LIMIT_S)
        goes_on.wait(LIMIT_S)

    for ask in (database.write, database.read, database.read):
        ask(wait)
    paused.wait(LIMIT_S)
    try:
        yield
    finally:
        goes_on.set()


async def test_callers_are_told_in_time_and_live_requests_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    job_id = await submit(rig, chat())
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    monkeypatch.setattr(store_answers, "ANSWER_S", 0.1)
    with hanging(gateway):
        for reply in (
            await post(rig, chat(2)),
            await rig.get("/jobs"),
            await rig.get(f"/jobs/{job_id}"),
            await rig.get(f"/jobs/{job_id}", method="DELETE"),
            await rig.get("/v1/batches"),
            await rig.get("/v1/files"),
        ):
            assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
        client, call = await rig.run(node)
        await call.answer(OK)
        assert (await client.reply()).status == 200
    monkeypatch.setattr(store_answers, "ANSWER_S", LIMIT_S)
    assert (await rig.get("/jobs")).json["data"][0]["id"] == job_id


async def test_the_database_is_not_asked_again_and_again_while_it_says_nothing(rig: Rig) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    job_id = await submit(rig, chat())
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    database = gateway.parts.jobs.engine.store.database
    with hanging(gateway):
        for _ in range(20):
            rig.clock.advance(engine.POLL_S)
            await rig.queue()
        assert database._reads.qsize() + database._writes.qsize() < 10
    assert (await rig.get("/jobs")).status == 200


async def test_the_end_does_not_wait_for_an_answer_that_only_the_database_could_give(
    rig: Rig,
) -> None:
    cold, answers = (await rig.start())._cold, asyncio.Event()

    async def upload() -> None:
        while not answers.is_set():
            with suppress(asyncio.CancelledError):
                await answers.wait()

    waits = asyncio.ensure_future(upload())
    cold._state.tasks.add(waits)
    async with asyncio.timeout(LIMIT_S):
        await cold.stop(0.01)
    assert not waits.done()
    answers.set()
    await waits


async def fill(rig: Rig, node: Any, **settings: Any) -> list[int]:
    """Start with jobs that run and some that are queued."""
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
