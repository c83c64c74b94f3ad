"""Webhooks: the operator's server hears of every end, signed, again and again until it has."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any

import openai
import pytest
from sqlalchemy import func, select, update

from forebay.jobs.store.schema import jobs
from forebay.jobs.webhooks import ATTEMPTS

from ..conftest import OK
from .job_steps import chat, submit, until

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from ..conftest import Rig

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()


async def start(rig: Rig, node: FakeNode, hook: FakeNode, **more: Any) -> None:
    url = f"{hook.url}/hooks?from=forebay"
    await rig.start(node, jobs={"webhook_url": url, **more}, environ={"HOOK": SECRET})


async def make_due(rig: Rig, attempts: int) -> None:
    """Let the pause before the next attempt be over, once the last one is written down."""
    for _ in range(2000):
        if await count(rig, jobs.c.webhook_attempt == attempts):
            break
    statement = update(jobs).where(jobs.c.webhook_due.is_not(None)).values(webhook_due=1.0)
    opened = rig.gateway.parts.jobs
    opened.engine.store.database.write(lambda c: c.execute(statement).rowcount).result(10)
    assert opened.engine.webhooks is not None
    opened.engine.webhooks.wake()


async def count(rig: Rig, condition: Any) -> int:
    await rig.queue()  # give the loop a turn
    wanted = select(func.count()).select_from(jobs).where(condition)
    database = rig.gateway.parts.jobs.engine.store.database
    return int(database.read(lambda c: c.execute(wanted).scalar_one()).result(10))


async def until_told(rig: Rig) -> None:
    for _ in range(2000):
        if not await count(rig, jobs.c.webhook_due.is_not(None)):
            return
    raise AssertionError("still due")


async def test_the_end_of_a_job_is_told_signed_and_without_its_words(rig: Rig) -> None:
    node, hook = await rig.node(), await rig.node()
    await start(rig, node, hook, webhook_secret_env="HOOK")
    job_id = await submit(rig, chat(1, job_id=9))
    await (await node.next_call()).answer({"secret": "answer"})
    told = await hook.next_call()
    assert told.path == "/hooks?from=forebay"
    assert told.json["type"] == "job.completed"
    assert told.json["data"] == {
        "id": job_id, "type": "chat", "job_id": 9, "status": "completed", "model": "m",
        "error_code": None,
    }  # fmt: skip
    assert b"hello" not in told.body
    assert b"answer" not in told.body
    client = openai.OpenAI(api_key="x", webhook_secret=SECRET)
    client.webhooks.verify_signature(told.body.decode(), told.headers, tolerance=10**10)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.verify_signature(told.body.decode() + " ", told.headers, tolerance=10**10)
    await told.answer({})
    await until_told(rig)


async def test_failures_and_cancellations_are_told_too(rig: Rig) -> None:
    node, hook = await rig.node(), await rig.node()
    await start(rig, node, hook)
    await submit(rig, chat(1))
    await (await node.next_call()).answer({"error": "no"}, 400)
    told = await hook.next_call()
    assert (told.json["type"], told.json["data"]["error_code"]) == ("job.failed", "node_refused")
    assert "webhook-signature" not in told.headers
    await told.answer({})
    job_id = await submit(rig, chat(2))
    call = await node.next_call()
    await rig.get(f"/jobs/{job_id}", method="DELETE")
    await call.gone()
    told = await hook.next_call()
    assert told.json["type"] == "job.cancelled"
    await told.answer({})
    await until_told(rig)


async def test_what_is_not_heard_is_told_again_under_the_same_id(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node, hook = await rig.node(), await rig.node()
    await start(rig, node, hook)
    job_id = await submit(rig)
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    ids = set()
    for attempt in range(ATTEMPTS):
        told = await hook.next_call()
        ids.add(told.headers["webhook-id"])
        if attempt % 2:
            told.reset()
        else:
            await told.answer({}, 500)
        await make_due(rig, attempt + 1)
    assert ids == {f"evt_job_{job_id}_1"}
    await until_told(rig)
    words = [record.getMessage() for record in caplog.records if record.name.endswith("webhooks")]
    assert words[-1].endswith("given up")
    assert len(words) == ATTEMPTS
    assert len(hook.calls) == ATTEMPTS


async def test_a_restart_goes_on_telling(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "forebay.webhooks")
    node, hook = await rig.node(), await rig.node()
    await start(rig, node, hook)
    job_id = await submit(rig)
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    await hook.next_call()  # taken, and never answered
    await rig.gateway.stop(0.0)
    await start(rig, node, hook)
    await make_due(rig, 0)
    told = await hook.next_call()
    assert told.headers["webhook-id"] == f"evt_job_{job_id}_1"
    await told.answer({})
    await until_told(rig)


async def test_nobody_is_told_unless_the_operator_says_whom(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig)
    await (await node.next_call()).answer(OK)
    await until(rig, job_id, "completed")
    assert await count(rig, jobs.c.webhook_due.is_not(None)) == 0


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
