"""One key fills what keys share, and others find room all the same: over real HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay import shares
from forebay.gateway.routes import dashboard
from forebay.gateway.routes import jobs as job_routes

from .conftest import OK
from .jobs.job_steps import chat, post, until
from .sessions.session_steps import Http

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from .conftest import Rig

ENVIRON = {name: f"sk-secret-of-{name}" for name in "abcd"}
A, B, C, D = ({"authorization": f"Bearer {secret}"} for secret in ENVIRON.values())
KEYS = [{"name": name, "key_env": name, "admin": True} for name in ENVIRON]
REFUSED = "this key holds 16 of 20"


async def start(rig: Rig, keys: list[dict[str, Any]] = KEYS, **settings: Any) -> FakeNode:
    node = await rig.node()
    await rig.start(node, keys=keys, environ=ENVIRON, **settings)
    rig.headers = A
    return node


async def test_sessions_of_one_key_leave_room_for_the_others(rig: Rig) -> None:
    await start(rig, sessions={"max_sessions": 20})
    said = await asyncio.gather(*(Http(rig).new(A, model="m") for _ in range(20)))
    made, refused = ([one for one in said if one.ok is ok] for ok in (True, False))
    assert (len(made), refused[0].number, refused[0].code) == (16, 503, "too_many_sessions")
    assert REFUSED in refused[0].body["message"]
    assert refused[0].headers["retry-after"] == "60"
    assert [(await Http(rig).new(key, model="m")).ok for key in (B, C, D)] == [True] * 3
    await rig.gateway.stop(0.0)
    await start(rig, sessions={"max_sessions": 20})  # whose the sessions are is not forgotten
    branch = await Http(rig).branch(made[0].body["sessionId"], B)  # it would be a's
    assert branch.code == "too_many_sessions"
    for session in made[:4]:  # 12 are left of 20, and 5 are free
        assert (await Http(rig).ask("DELETE", f"/session/{session.body['sessionId']}", A)).ok
    assert (await Http(rig).new(A, model="m")).ok


async def test_one_key_alone_may_have_all_sessions(rig: Rig) -> None:
    await start(rig, KEYS[:1], sessions={"max_sessions": 20})
    said = [(await Http(rig).new(A, model="m")).ok for _ in range(21)]
    assert said == [True] * 20 + [False]


async def test_queued_jobs_of_one_key_leave_room_for_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await start(rig, jobs={"max_queue_depth": 20})
    await rig.get("/admin/nodes/n1/drain", method="POST")
    replies = await asyncio.gather(*(post(rig, chat(n), A) for n in range(20)))
    refused = [reply.json["error"] for reply in replies if reply.status == 429]
    assert (len(refused), refused[0]["code"]) == (4, "job_queue_full")
    assert REFUSED in refused[0]["message"]
    assert f"'chat' is full ({REFUSED}" in caplog.text
    again = await rig.get(f"/jobs/{refused[0]['id']}/retry", method="POST")
    assert (again.status, REFUSED in again.json["error"]["message"]) == (429, True)
    assert [(await post(rig, chat(), key)).status for key in (B, C, D)] == [202] * 3


async def test_a_full_queue_of_jobs_says_when_to_come_by_how_often_its_jobs_end(rig: Rig) -> None:
    node = await start(rig, jobs={"max_queue_depth": 1})
    for number in range(3):
        job_id = (await post(rig, chat(number), A)).json["id"]
        call = await node.next_call()
        rig.clock.advance(20.0)
        await call.answer(OK)
        await until(rig, job_id, "completed")
    await rig.get("/admin/nodes/n1/drain", method="POST")
    embedding = {"type": "embedding", "params": {"model": "m", "input": "x"}}
    for body, at_least_s, at_most_s in ((chat(), 16, 24), (embedding, 4, 6)):
        assert (await post(rig, body, A)).status == 202
        refused = await post(rig, {**body, "job_id": 2}, A)
        assert at_least_s <= int(refused.headers["retry-after"]) <= at_most_s


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [
        (dashboard, "PAGE_STREAMS", "/events"),
        (job_routes, "JOB_STREAMS", "/jobs/1/events"),
    ],
)
async def test_streams_of_one_key_leave_room_for_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str
) -> None:
    monkeypatch.setattr(module, name, getattr(shares, name)._replace(places=20))
    await start(rig)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    await post(rig, chat(), A)
    for key in (*[A] * 16, B, C, D):
        follower = await rig.client()
        await follower.get(path, key)
        assert (await follower.head()).status == 200
    refused = await rig.get(path)
    assert (refused.status, refused.headers["retry-after"]) == (503, "60")
    assert "too_many_connections" in refused.body.decode()
    assert REFUSED in refused.body.decode()
