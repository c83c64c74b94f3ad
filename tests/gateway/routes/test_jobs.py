"""`/jobs`: whose they are, what is wrong with a submission, and what may be seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ..conftest import OK
from ..jobs.job_steps import (
    ENVIRON,
    KEYS,
    bearer,
    chat,
    pieces,
    post,
    submit,
    until,
    until_metrics_say,
)

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_jobs_belong_to_their_key_and_admins_see_all(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, keys=KEYS, environ=ENVIRON)
    reply = await post(rig, chat(), bearer("A"))
    path = f"/jobs/{reply.json['id']}"
    for name, status in (("A", 200), ("B", 404), ("ROOT", 200)):
        assert (await rig.get(path, bearer(name))).status == status
        assert (await rig.get(f"{path}/events", bearer("B"))).status == 404
    assert (await rig.get(path, bearer("B"), "DELETE")).status == 404
    assert (await rig.get(f"{path}/retry", bearer("B"), "POST")).status == 404
    assert (await rig.get("/jobs", bearer("B"))).json == {"data": []}
    (own,), (seen,) = [(await rig.get("/jobs", bearer(one))).json["data"] for one in ("A", "ROOT")]
    assert ("owner" in own, seen["owner"]) == (False, "a")
    assert (await rig.get(path, bearer("ROOT"))).json["owner"] == "a"
    assert (await rig.get("/jobs")).status == 401
    call = await node.next_call()
    assert "authorization" not in call.headers
    assert (await rig.get(path, bearer("A"), "DELETE")).status == 200
    await call.gone()


async def test_the_list_filters_and_shows_no_prompts(rig: Rig, database_url: str) -> None:
    node = await rig.node(models=["m", "n"])
    await rig.start(node, jobs={"database": database_url})
    ids = [await submit(rig, chat(n)) for n in range(3)]
    call = await node.next_call()
    listed = (await rig.get("/jobs?status=queued&type=chat&model=m&limit=1")).json
    assert ([row["id"] for row in listed["data"]], listed["has_more"]) == ([ids[2]], True)
    assert "params" not in listed["data"][0]
    before = (await rig.get(f"/jobs?limit=2&before={ids[2]}")).json
    assert [row["id"] for row in before["data"]] == [ids[1], ids[0]]
    assert "has_more" not in before
    for query in ("type=nothing", "model=n"):
        assert (await rig.get(f"/jobs?{query}")).json == {"data": []}
    for query in ("status=odd", "limit=0", "limit=x", "before=-1", "limit=1e9"):
        reply = await rig.get(f"/jobs?{query}")
        assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
        assert reply.json["error"]["param"] == query.partition("=")[0]
    await call.answer(OK)
    for _ in range(2):
        await (await node.next_call()).answer(OK)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, "body"),
        (b"[]", 400, "body"),
        (b'{"type":"chat","params":{"model":"m","messages":"\xff"}}', 400, "body"),
        ({"params": {}}, 400, "type"),
        ({"type": 3}, 400, "type"),
        ({"type": "chatt", "params": {}}, 400, "type"),
        ({"type": "chat"}, 400, "params.model"),
        ({"type": "chat", "params": []}, 400, "params"),
        ({"type": "chat", "params": "x"}, 400, "params"),
        ({"type": "chat", "params": {"model": 3}}, 400, "params.model"),
        ({"type": "chat", "params": {"model": "m", "stream": True}}, 400, "params.stream"),
        ({"type": "chat", "params": {"model": "m", "max_tokens": "x"}}, 400, "params.max_tokens"),
        ({"type": "chat", "params": {"model": "unknown"}}, 404, "params.model"),
        ({"type": "chat", "params": {"model": "m"}, "model": "other"}, 400, "model"),
        ({"type": "chat", "params": {"model": "m"}, "priority": "soon"}, 400, "priority"),
        ({"type": "chat", "params": {"model": "m"}, "job_id": "x"}, 400, "job_id"),
        ({"type": "chat", "params": {"model": "m"}, "job_id": 2**70}, 400, "job_id"),
        ({"type": "chat", "params": {"model": "m"}, "idempotency_key": ""}, 400,
         "idempotency_key"),
        ({"type": "chat", "params": {"model": "m"}, "parms": 1}, 400, "parms"),
        ({"type": "x" * 300, "params": {}}, 400, "type"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_a_submission_is_named(
    rig: Rig, body: object, status: int, param: str
) -> None:
    await rig.start(await rig.node())
    reply = await post(rig, body)
    assert (reply.status, reply.json["error"]["param"]) == (status, param), reply.json
    assert not (rig.folder / "jobs.db").exists()  # refused before anything was made


async def test_params_that_are_too_large_are_refused(rig: Rig) -> None:
    await rig.start(await rig.node())
    reply = await post(rig, chat(1, job_id=1) | {"idempotency_key": "x" * 8_400_000})
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("job_id", ["0", "99999", "x", "-1", "9" * 40, "%00"])
async def test_a_job_that_is_not_there_is_404_everywhere(rig: Rig, job_id: str) -> None:
    await rig.start(await rig.node())
    for path, method in (
        (f"/jobs/{job_id}", "GET"),
        (f"/jobs/{job_id}", "DELETE"),
        (f"/jobs/{job_id}/retry", "POST"),
        (f"/jobs/{job_id}/events", "GET"),
    ):
        reply = await rig.get(path, method=method)
        assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_a_gateway_without_jobs_leaves_no_file_behind(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert (await rig.get("/metrics")).status == 200
    assert list(rig.folder.iterdir()) == []


async def test_a_database_that_cannot_be_opened_costs_the_jobs_only(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, jobs={"database": "sqlite:////nowhere/at/all/jobs.db"})
    reply = await post(rig, chat())
    assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
    assert "retry-after" in reply.headers
    client, call = await rig.run(node)
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_metrics_count_jobs_by_type_and_status(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    job_id = await submit(rig, chat(1))
    await submit(rig, chat(2))
    call = await node.next_call()
    text = await until_metrics_say(rig, 'forebay_jobs{status="running",type="chat"} 1.0')
    assert 'forebay_jobs{status="queued",type="chat"} 1.0' in text
    assert 'forebay_job_wait_seconds_count{type="chat"} 1.0' in text
    assert "forebay_vram_reserved_bytes 0.0" in text
    await call.answer(OK)
    await until(rig, job_id, "completed")
    await until_metrics_say(rig, 'forebay_jobs{status="completed",type="chat"} 1.0')
    await (await node.next_call()).answer(OK)


async def test_a_job_is_followed_to_its_end(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    blocker = await submit(rig, chat(0))
    running = await node.next_call()
    job_id = await submit(rig, chat(1))
    client = await rig.client()
    await client.get(f"/jobs/{job_id}/events")
    head = await client.head()
    assert head.headers["content-type"].startswith("text/event-stream")
    await running.answer(OK)
    await (await node.next_call()).answer(OK)
    text = b"".join([piece async for piece in pieces(client)]).decode()
    events = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    assert events[-1] == "completed"
    assert set(events) <= {"queued", "running", "completed"}
    last = json.loads([line[6:] for line in text.splitlines() if line.startswith("data: ")][-1])
    assert (last["id"], last["status"]) == (job_id, "completed")
    await until(rig, blocker, "completed")
