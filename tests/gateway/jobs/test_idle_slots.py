"""Corners of jobs in idle slots: what is cancelled in the instant of its claim, unknown models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs import loop
from forebay.jobs.builtin import queue_of
from forebay.jobs.idle import tickets
from forebay.jobs.job import NewJob
from forebay.jobs.outcomes import settled

from ..conftest import OK
from .job_steps import ENVIRON, KEYS, bearer, chat, job, submit, until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.idle.backlog import ModelBacklog
    from forebay.jobs.loop import JobLoop

    from ..conftest import Rig


def hold_claims(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Let claims be committed, but their answers arrive only when the second event is set."""
    asked, gate = asyncio.Event(), asyncio.Event()

    async def late(claim: Future[ClaimedJob | None], limit_s: float) -> None:
        await settled(claim, limit_s)
        asked.set()
        await gate.wait()

    monkeypatch.setattr(loop, "settled", late)
    return asked, gate


LOOK_S = 10.0


def job_loop(rig: Rig) -> JobLoop[ModelBacklog]:
    found = rig.gateway.parts.jobs.engine.loop
    assert found is not None
    return found


async def pass_until(rig: Rig, job_id: int, status: str, seconds: float) -> dict[str, Any]:
    """Let so much time pass, as far as it takes for the job to be there; return it."""
    for _ in range(int(seconds / LOOK_S)):
        rig.clock.advance(LOOK_S)
        await job_loop(rig).look()
        seen = await job(rig, job_id)
        if seen["status"] == status:
            break
    return seen


async def pass_to(rig: Rig, job_id: int, status: str) -> dict[str, Any]:
    """Let as much time pass as it takes for the job to be there; a commit may be slow."""
    await pass_until(rig, job_id, status, 400.0)
    return await until(rig, job_id, status)


async def until_noted(rig: Rig, model: str) -> None:
    """Let time pass until the gateway has written down that it has the model."""
    store = rig.gateway.parts.jobs.engine.store
    for _ in range(NOTES):
        if await asyncio.wrap_future(store.is_served(queue_of(model), "")):
            return
        rig.clock.advance(2.0)
        await rig.queue()
    raise AssertionError(f"nobody says that he has {model}")


NOTES = 500
"""Looks, until it must have been written."""


async def test_a_job_cancelled_in_the_instant_of_its_claim_never_reaches_a_node(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    _, gate = hold_claims(monkeypatch)
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
    _, gate = hold_claims(monkeypatch)
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


async def test_a_gateway_that_drains_keeps_the_lease_of_what_still_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    job_id = await submit(rig, chat())
    call = await node.next_call()
    await until(rig, job_id, "running")
    gateway.parts.jobs.drain()
    store, beats = gateway.parts.jobs.engine.store, asyncio.Event()
    heartbeat = store.heartbeat

    def beat(*given: Any) -> Any:
        beats.set()
        return heartbeat(*given)

    monkeypatch.setattr(store, "heartbeat", beat)
    rig.clock.advance(gateway.parts.settings.jobs.lease_seconds / 2)
    assert beats.is_set()
    await call.answer(OK)
    await until(rig, job_id, "completed")


async def test_jobs_of_a_model_that_nobody_has_fail_at_once_with_the_nearest_name(rig: Rig) -> None:
    await rig.start(await rig.node(models=["mistral"]))
    known = await submit(rig, chat(0, model="mistral"))
    store = rig.gateway.parts.jobs.engine.store
    new = [NewJob("chat", "{}", n, queue_of("mistrl"), "mistrl") for n in range(3)]
    added = await asyncio.wrap_future(store.add(new))
    for one in added:  # the clock of the gateway stands still
        failed = await until(rig, one.id, "failed")
        assert failed["error_code"] == "model_not_found"
        assert failed["error"] == 'no node has the model "mistrl"; did you mean "mistral"?'
    assert (await job(rig, known))["status"] == "running"
    assert (
        'rejected_total{reason="model_not_found"}' not in (await rig.get("/metrics")).body.decode()
    )


async def test_on_a_shared_database_jobs_of_a_model_unknown_here_wait_for_other_gateways(
    rig: Rig, postgres_url: str
) -> None:
    """One may have it, although nothing was heard of it yet."""
    await rig.start(await rig.node(models=["mistral"]), jobs={"database": postgres_url})
    store = rig.gateway.parts.jobs.engine.store
    new = [NewJob("chat", "{}", 0, queue_of("mistrl"), "mistrl")]
    (added,) = await asyncio.wrap_future(store.add(new))
    assert (await pass_until(rig, added.id, "failed", 40.0))["status"] == "queued"
    failed = await pass_to(rig, added.id, "failed")
    assert failed["error"] == 'no node has the model "mistrl"; did you mean "mistral"?'


async def test_jobs_of_a_model_that_a_busy_gateway_has_are_not_failed_by_another(
    rig: Rig, postgres_url: str
) -> None:
    node = await rig.node(models=["mistral"])
    await rig.start(node, jobs={"database": postgres_url})
    live, call = await rig.run(node, model="mistral")
    added = await submit(rig, chat(model="mistral"))
    await until_noted(rig, "mistral")
    await rig.start(await rig.node(models=["m"]), jobs={"database": postgres_url})
    assert (await pass_until(rig, added, "failed", 400.0))["status"] == "queued"
    await call.answer(OK)
    assert (await live.reply()).status == 200
    await (await node.next_call()).answer(OK)
    await until(rig, added, "completed")


async def test_jobs_of_a_gateway_that_is_down_are_not_failed_by_another(
    rig: Rig, postgres_url: str
) -> None:
    node = await rig.node(models=["mistral"])
    first = await rig.start(node, jobs={"database": postgres_url})
    live, call = await rig.run(node, model="mistral")
    added = await submit(rig, chat(model="mistral"))
    await until_noted(rig, "mistral")
    await call.answer(OK)
    assert (await live.reply()).status == 200
    call = await node.next_call()
    await first.stop(0.0)
    await rig.start(await rig.node(models=["m"]), jobs={"database": postgres_url})
    assert (await pass_until(rig, added, "failed", 400.0))["status"] == "queued"


async def test_the_names_in_a_failure_are_those_that_the_key_of_the_job_may_use(rig: Rig) -> None:
    keys = [
        {**KEYS[0], "models": ["mistral-a"]},
        {**KEYS[1], "models": ["mistral-b"]},
        KEYS[2],
    ]
    await rig.start(await rig.node(models=["mistral-a", "mistral-b"]), keys=keys, environ=ENVIRON)
    await rig.get("/jobs", bearer("ROOT"))  # opens the store
    store = rig.gateway.parts.jobs.engine.store
    new = [NewJob("chat", "{}", 0, queue_of("mistral"), "mistral", owner=who) for who in "ab"]
    added = await asyncio.wrap_future(store.add(new))
    for one, name in zip(added, ("mistral-a", "mistral-b"), strict=True):
        for _ in range(2000):
            seen = (await rig.get(f"/jobs/{one.id}", bearer("ROOT"))).json
            if seen["status"] == "failed":
                break
        assert seen["error"] == f'no node has the model "mistral"; did you mean "{name}"?'


@pytest.mark.parametrize("fallbacks", [(), ("gone-too",)])
async def test_jobs_wait_a_while_for_a_node_that_was_removed_and_then_fail(
    rig: Rig, fallbacks: tuple[str, ...], database_url: str
) -> None:
    node, other = await rig.node(models=["gone", *fallbacks]), await rig.node(models=["m"])
    models = {"fallbacks": {"gone": fallbacks}}
    await rig.start(node, other, models=models, jobs={"database": database_url})
    added = [await submit(rig, chat(n, model="gone")) for n in range(3)]
    call = await node.next_call()
    rig.gateway.parts.nodes.remove("n1")  # a ticket waits for it
    await call.answer(OK)
    assert (await pass_until(rig, added[2], "failed", 50.0))["status"] == "queued"
    for job_id in added[1:]:
        failed = await pass_to(rig, job_id, "failed")
        assert failed["error_code"] == "model_not_found"
    assert not rig.gateway.parts.relay.reservations


async def test_jobs_of_a_node_that_comes_back_in_time_are_run(rig: Rig) -> None:
    node = await rig.node(models=["back"])
    await rig.start(node, await rig.node(models=["m"]))
    added = [await submit(rig, chat(n, model="back")) for n in range(2)]
    call = await node.next_call()
    nodes = rig.gateway.parts.nodes
    settings = rig.gateway.parts.settings.nodes[0]
    nodes.remove("n1")
    await call.answer(OK)
    await pass_until(rig, added[1], "failed", 50.0)
    nodes.add(settings)
    await (await node.next_call()).answer(OK)
    await until(rig, added[1], "completed")


async def test_a_ticket_for_a_node_that_was_removed_goes_on_with_the_fallback(rig: Rig) -> None:
    node, other = await rig.node(models=["gone"]), await rig.node(models=["m"])
    await rig.start(node, other, models={"fallbacks": {"gone": ["m"]}})
    first = await submit(rig, chat(0, model="gone"))
    call = await node.next_call()
    live = await rig.ask()  # keeps the fallback busy while the next ticket is made
    busy = await other.next_call()
    second = await submit(rig, chat(1, model="gone"))
    while len(rig.gateway.parts.relay.reservations) < 1:
        await rig.queue()
    rig.gateway.parts.nodes.remove("n1")
    await call.answer(OK)
    await busy.answer(OK)
    assert (await live.reply()).status == 200
    await until(rig, first, "completed")
    await pass_to(rig, second, "running")
    await (await other.next_call()).answer(OK)
    await until(rig, second, "completed")


async def test_with_no_node_at_all_jobs_wait_a_while_before_they_fail(rig: Rig) -> None:
    await rig.start()
    await rig.get("/jobs")  # opens the store
    store = rig.gateway.parts.jobs.engine.store
    new = [NewJob("chat", "{}", n, queue_of("gone"), "gone") for n in range(3)]
    added = await asyncio.wrap_future(store.add(new))
    waiting = await pass_until(rig, added[0].id, "failed", 40.0)
    assert waiting["status"] == "queued"  # it may still come
    failed = await pass_to(rig, added[2].id, "failed")
    assert failed["error_code"] == "model_not_found"
    assert "gone" in failed["error"]


async def test_more_models_than_may_stand_in_line_get_their_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "TICKETS_MAX", 2)
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
    asked, gate = hold_claims(monkeypatch)
    await rig.get("/admin/nodes/n1/resume", method="POST")
    await asked.wait()
    monkeypatch.undo()
    second = await submit(rig, chat(1))
    backlog = job_loop(rig).backlogs[queue_of("m"), ""]
    while backlog.announced < 2:
        await rig.queue()
    gate.set()
    await (await node.next_call()).answer(OK)
    await until(rig, second, "completed")


async def test_a_store_too_slow_for_a_slot_costs_no_job_and_no_attempt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await rig.node()
    await rig.start(node)
    first = await submit(rig, chat(0))
    await (await node.next_call()).answer(OK)
    await until(rig, first, "completed")
    asked = asyncio.Event()

    async def too_late(claim: Future[ClaimedJob | None], limit_s: float) -> None:
        asked.set()  # and the slot goes back before the answer is there

    monkeypatch.setattr(loop, "PAUSE_S", 0.01)
    monkeypatch.setattr(loop, "settled", too_late)
    second = await submit(rig, chat(1))
    await asked.wait()
    monkeypatch.setattr(loop, "settled", settled)
    await (await node.next_call()).answer(OK)
    assert (await until(rig, second, "completed"))["attempt"] == 1
    assert "pausing job dispatch for 0.01 s: the store is slow" in caplog.text


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
