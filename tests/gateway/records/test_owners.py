"""What a key made belongs to its owner, whatever text or namesake the key gets later."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..conftest import OK
from ..hot.forms import upload
from ..hot.test_users_and_keys import start
from ..jobs.job_steps import chat
from ..jobs.job_steps import until as until_job
from .test_made_keys import made, make, revoke, until

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig

Headers = dict[str, str]
LINE = {
    "custom_id": "1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [{"role": "user", "content": "hello"}]},
}


async def post(rig: Rig, path: str, who: Headers, body: object) -> dict[str, Any]:
    headers = {"content-type": "application/json", **who}
    reply = await rig.get(path, headers, "POST", body=json.dumps(body).encode())
    assert reply.status < 300, reply.body
    answer: dict[str, Any] = reply.json
    return answer


async def leave_one_of_each(rig: Rig, who: Headers) -> list[str]:
    """Have a key make what lasts; return the paths where that is to be seen."""
    job = await post(rig, "/jobs", who, chat())
    file = (await upload(rig, json.dumps(LINE).encode(), who))["id"]
    asked = {"input_file_id": file, "endpoint": LINE["url"], "completion_window": "24h"}
    batch = await post(rig, "/v1/batches", who, asked)
    session = await post(rig, "/session", who, {"model": "m"})
    return [
        f"/jobs/{job['id']}",
        f"/v1/files/{file}",
        f"/v1/batches/{batch['id']}",
        f"/session/{session['sessionId']}",
    ]


async def statuses(rig: Rig, paths: list[str], who: Headers) -> list[int]:
    return [(await rig.get(path, who)).status for path in paths]


async def used(rig: Rig, who: Headers) -> list[tuple[str, int]]:
    rig.clock.advance(0.5)  # what has ended is handed on with the next tick
    rows = (await rig.get("/v1/usage?by=key", who)).json["data"]
    return [(row["key"], row["requests"]) for row in rows]


async def serve(rig: Rig, node: Any, who: Headers) -> None:
    client, call = await rig.run(node, headers=who)
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def renew(rig: Rig, name: str, body: bytes = b"") -> Reply:
    return await rig.get(f"/admin/keys/{name}/renew", method="POST", body=body)


async def test_a_key_made_anew_under_the_name_of_a_revoked_one_owns_nothing(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    await serve(rig, node, ann)
    await rig.run(node, headers=rig.headers)  # so that jobs and prompts only wait
    paths = await leave_one_of_each(rig, ann)
    assert await statuses(rig, paths, ann) == [200] * 4
    assert (await revoke(rig, "ann")).status == 204
    namesake = await made(rig, name="ann")
    assert await statuses(rig, paths, namesake) == [404] * 4
    for path in ("/jobs", "/v1/files", "/v1/batches", "/session"):
        assert (await rig.get(path, namesake)).json["data"] == []
    assert await used(rig, namesake) == []
    assert ("ann", 1) in await used(rig, rig.headers)
    shown = (await rig.get("/jobs")).json["data"]
    assert [job["owner"] for job in shown] == ["ann"]


async def test_jobs_count_for_the_user_that_a_key_without_one_is(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    await serve(rig, node, ann)
    job = await post(rig, "/jobs", ann, chat())
    await (await node.next_call()).answer(OK)
    await until_job(rig, job["id"], "completed")
    rig.clock.advance(0.5)
    rows = (await rig.get("/v1/usage?by=user", ann)).json["data"]
    assert [(row["user"], row["requests"]) for row in rows] == [("ann", 2)]


async def test_a_namesake_does_not_see_what_still_runs_of_the_revoked_one(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    client, call = await rig.run(node, headers=await made(rig, name="ann") | {"X-Request-Id": "1"})
    await revoke(rig, "ann")
    namesake = await made(rig, name="ann")
    for method in ("GET", "DELETE"):
        assert (await rig.get("/v1/queue/1", namesake, method)).status == 404
    assert (await rig.get("/v1/queue/1")).status == 200
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_renewed_key_keeps_what_it_made_and_its_old_text_ends_at_once(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    old = await made(rig, name="ann", max_running=2)
    running, call = await rig.run(node, headers=old)
    (waiting,) = await rig.line_up(1, headers=old)
    paths = await leave_one_of_each(rig, old)
    renewed = await renew(rig, "ann")
    assert (renewed.status, renewed.json["max_running"]) == (200, 2)
    new = {"Authorization": f"Bearer {renewed.json['key']}"}
    assert await statuses(rig, paths, old) == [401] * 4
    assert await statuses(rig, paths, new) == [200] * 4
    refused = await (await rig.ask(headers=new)).reply()
    assert refused.json["error"]["code"] == "user_queue_full"  # the two of before still count
    for client in (running, waiting):
        await call.answer(OK)
        assert (await client.reply()).status == 200
        call = await node.next_call() if client is running else call


async def test_only_a_key_that_was_made_can_be_renewed_and_only_its_text(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[])
    await made(rig, name="ann")
    assert (await renew(rig, "nobody")).status == 404
    assert (await renew(rig, "admin")).json["error"]["code"] == "conflict"
    refused = await renew(rig, "ann", b'{"admin": true}')
    assert (refused.status, refused.json["error"]["param"]) == (400, "admin")
    taken = (
        (await make(rig, name="bob", key_sha256="a" * 64)).status,
        await renew(rig, "ann", b'{"key_sha256": "%b"}' % (b"a" * 64)),
    )
    assert (taken[0], taken[1].status) == (201, 409)


async def test_keys_of_before_there_were_owners_keep_what_they_made(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    await serve(rig, node, ann)
    await rig.run(node, headers=rig.headers)
    paths = await leave_one_of_each(rig, ann)
    await used(rig, ann)  # writes it
    await rig.gateway.stop(0.0)
    with closing(sqlite3.connect(rig.folder / "jobs.db")) as file:
        for table, owner in (
            ("jobs", "owner"),
            ("files", "owner"),
            ("batches", "owner"),
            ("usage_hours", "key"),
        ):
            file.execute(f"UPDATE {table} SET {owner} = 'ann' WHERE {owner} LIKE 'key:%'")
        file.execute("ALTER TABLE api_keys DROP COLUMN owner")
        file.execute("DROP TABLE revoked_keys")
        file.execute("UPDATE forebay_records_schema SET version = 2")
        file.commit()
    with closing(sqlite3.connect(rig.folder / "jobs.sessions.db")) as file:
        file.execute("UPDATE sessions SET owner = 'ann'")
        file.execute("UPDATE forebay_sessions_schema SET version = 2")
        file.commit()
    await start(rig, node, keys=[])
    await until(rig, ann, 200)
    assert await statuses(rig, paths, ann) == [200] * 4
    assert await used(rig, ann) == [("ann", 1)]
    await revoke(rig, "ann")
    assert await statuses(rig, paths, await made(rig, name="ann")) == [404] * 4


async def test_a_key_whose_row_cannot_be_read_is_switched_off_alone(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[])
    ann, bob = await made(rig, name="ann"), await made(rig, name="bob", requests_per_minute=1)
    cyd = await made(rig, name="cyd")
    await rig.gateway.stop(0.0)
    with closing(sqlite3.connect(rig.folder / "jobs.db")) as file:
        absurd = '{"requests_per_minute": 100000000000000000000}'
        file.execute("UPDATE api_keys SET settings = ? WHERE name = 'ann'", (absurd,))
        file.execute("UPDATE api_keys SET settings = '{' WHERE name = 'cyd'")
        file.commit()
    await start(rig, node, keys=[])
    await until(rig, bob, 200)
    assert [(await rig.get("/v1/models", who)).status for who in (ann, cyd)] == [401, 401]
    await serve(rig, node, bob)
    limited = await (await rig.ask(headers={**bob, "X-Forebay-Max-Wait": "1"})).reply()
    assert limited.json["error"]["code"] == "rate_limited"  # limits of others are in force
    listed = {one["name"]: one["origin"] for one in (await rig.get("/admin/keys")).json["data"]}
    assert listed == {"admin": "settings", "ann": "unreadable", "bob": "made", "cyd": "unreadable"}
    page = await rig.client()
    await page.get("/events", rig.headers)
    assert (await page.head()).status == 200
    told = b""
    while b"event: snapshot" not in told:
        piece = await page.chunk()
        assert piece is not None
        told += piece
    assert b"2 API keys in the database cannot be read" in told
    assert (await revoke(rig, "cyd")).status == 204
    assert (await make(rig, name="cyd")).status == 201
