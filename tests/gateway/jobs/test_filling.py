"""Corners of filling idle slots: what is cancelled in the instant of its claim, unknown models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.jobs.filler import filler as filling
from forebay.jobs.filler.builtin import queue_of
from forebay.jobs.job import NewJob
from forebay.jobs.store import changes

from ..conftest import OK
from .job_steps import chat, job, submit, until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.jobs.filler.lane import Lane
    from forebay.jobs.job import Job

    from ..conftest import Rig


def hold_claims(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let claims be committed, but their answers arrive only when the event is set."""
    filler = rig.gateway.parts.jobs.engine.filler
    assert filler is not None
    gate = asyncio.Event()
    claim = filler._claim

    async def late(lane: Lane) -> Job | None:
        lane.claiming += 1  # as long as it is on its way
        try:
            taken = await claim(lane)
            await gate.wait()
        finally:
            lane.claiming -= 1
        return taken

    monkeypatch.setattr(filler, "_claim", late)
    return gate


async def test_a_job_cancelled_in_the_instant_of_its_claim_never_reaches_a_node(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    gate = hold_claims(rig, monkeypatch)
    job_id = await submit(rig, chat(1))
    await until(rig, job_id, "running")
    assert (await rig.get(f"/jobs/{job_id}", method="DELETE")).status == 200
    monkeypatch.undo()
    gate.set()
    assert (await rig.get(f"/jobs/{job_id}/retry", method="POST")).status == 202
    call = await node.next_call()  # the retry, and nothing before it
    await call.answer(OK)
    await until(rig, job_id, "completed")
    assert len(node.calls) == 2


async def test_a_gateway_that_stops_in_the_instant_of_a_claim_gives_the_job_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    first = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    gate = hold_claims(rig, monkeypatch)
    job_id = await submit(rig, chat(1))
    await until(rig, job_id, "running")
    stopping = asyncio.ensure_future(gateway.stop(0.0))
    await asyncio.sleep(0)
    gate.set()
    await stopping
    await rig.start(node)
    seen = await job(rig, job_id)
    assert (seen["status"], seen["error"]) in (("queued", None), ("running", None))
    await (await node.next_call()).answer(OK)
    assert (await until(rig, job_id, "completed"))["attempt"] == 1


async def test_jobs_of_a_model_that_nobody_has_fail_after_a_while(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    known = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, known, "completed")
    store = rig.gateway.parts.jobs.store
    new = [NewJob("chat", "{}", n, queue_of("gone"), "gone") for n in range(3)]
    added = await asyncio.wrap_future(store.add(new))
    for _ in range(20):
        rig.clock.advance(2.0)
        await rig.queue()
    assert (await job(rig, added[0].id))["status"] == "queued"  # it may still come
    for _ in range(200):
        rig.clock.advance(2.0)
        states = [(await job(rig, one.id))["status"] for one in added]
        if set(states) == {"failed"}:
            break
    failed = await job(rig, added[2].id)
    assert (failed["status"], failed["error_code"]) == ("failed", "model_not_found")
    assert "gone" in failed["error"]


async def test_more_models_than_may_stand_in_line_get_their_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "TICKETS_MAX", 2)
    names = [f"m{n}" for n in range(6)]
    node = await rig.node(models=names)
    await rig.start(node)
    ids = [await submit(rig, chat(n, model=name)) for n, name in enumerate(names)]
    asked = set()
    for _ in names:
        arriving = asyncio.ensure_future(node.next_call())
        while not arriving.done():
            rig.clock.advance(1.0)
            await rig.queue()
        call = arriving.result()
        asked.add(call.json["model"])
        await call.answer(OK)
    assert asked == set(names)
    for job_id in ids:
        await until(rig, job_id, "completed")


async def test_a_nodes_words_that_no_database_takes_do_not_cost_the_outcome(
    rig: Rig, postgres_url: str
) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"database": postgres_url})
    job_id = await submit(rig)
    await (await node.next_call()).answer(b'{"error":{"message":"odd \\u0000 words"}}', 400)
    failed = await until(rig, job_id, "failed")
    assert failed["error"] == "the node answered 400: odd \ufffd words"


@pytest.mark.parametrize("name", ["type", "model", "idempotency_key"])
async def test_names_that_cannot_be_printed_are_refused(rig: Rig, name: str) -> None:
    from .job_steps import post

    await rig.start(await rig.node())
    reply = await post(rig, chat() | {name: "a\0b"})
    assert (reply.status, reply.json["error"]["param"]) == (400, name)


async def test_a_job_that_comes_while_a_claim_finds_nothing_is_not_forgotten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    first = await submit(rig, chat(0))
    await rig.get(f"/jobs/{first}", method="DELETE")  # its ticket stands in line all the same
    filler = rig.gateway.parts.jobs.engine.filler
    assert filler is not None
    asked, gate, in_time = asyncio.Event(), asyncio.Event(), changes.in_time

    async def late(claim: Future[list[Job]], limit_s: float) -> bool:
        known = await in_time(claim, limit_s)
        asked.set()
        await gate.wait()
        return known

    monkeypatch.setattr(filling, "in_time", late)
    await rig.get("/admin/nodes/n1/resume", method="POST")
    await asked.wait()
    monkeypatch.undo()
    second = await submit(rig, chat(1))
    while not filler._lane(queue_of("m")).queued:  # until it has been heard of
        await rig.queue()
    gate.set()
    await (await node.next_call()).answer(OK)
    await until(rig, second, "completed")
