"""Keys that are made and revoked while the gateway runs: who may, what it changes, what is kept."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from forebay.errors import StoreFailed
from forebay.records.keys import KeyRecord
from forebay.records.store import RecordStore
from forebay.settings import digest_of

from ..conftest import OK
from ..hot.test_users_and_keys import ADMIN, A, key, start

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.records.keys import KeyTable
    from forebay.testing import Reply

    from ..conftest import Rig

BOSS = {"name": "boss", "admin": True}
LIMITS = ("max_running", "requests_per_minute", "tokens_per_minute", "tokens_per_day")


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def make(rig: Rig, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    client = await rig.client()
    await client.post("/admin/keys", fields, {**rig.headers, **(headers or {})})
    reply = await client.reply()
    client.close()
    return reply


async def revoke(rig: Rig, name: str, headers: dict[str, str] | None = None) -> Reply:
    return await rig.get(f"/admin/keys/{name}", headers, "DELETE")


async def made(rig: Rig, **fields: Any) -> dict[str, str]:
    """Make a key; return the header of its holder."""
    reply = await make(rig, **fields)
    assert reply.status == 201, reply.body
    return bearer(reply.json["key"])


async def until(rig: Rig, headers: dict[str, str], status: int) -> None:
    """Let time pass until a caller is answered so."""
    for _ in range(200):
        rig.clock.advance(0.5)
        if (await rig.get("/v1/models", headers)).status == status:
            return
    raise AssertionError(f"never answered {status}")


async def test_a_key_works_as_soon_as_it_is_made_and_no_longer_once_revoked(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann", models=["m"], max_running=1)
    client, call = await rig.run(node, headers=ann)
    assert (await (await rig.ask(headers=ann)).reply()).json["error"]["code"] == "user_queue_full"
    await call.answer(OK)
    assert (await client.reply()).status == 200
    assert (await revoke(rig, "ann")).status == 204
    assert (await rig.get("/v1/models", ann)).status == 401
    assert (await revoke(rig, "ann")).status == 404


async def test_what_waits_with_a_revoked_key_gets_401_and_what_runs_may_finish(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[])
    ann = await made(rig, name="ann")
    running, call = await rig.run(node, headers=ann)
    (waiting,) = await rig.line_up(1, headers=ann)
    assert (await revoke(rig, "ann")).status == 204
    assert (await waiting.reply()).status == 401
    await call.answer(OK)
    assert (await running.reply()).status == 200


async def test_keys_are_listed_with_what_they_may_do_and_never_their_text(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    ann = await make(rig, name="ann", user="u", trust_user=True, weight=2.0, share_prefixes=True)
    listed = await rig.get("/admin/keys")
    shown = {key["name"]: key for key in listed.json["data"]}
    assert list(shown) == ["a", "admin", "ann"]
    assert shown["a"]["origin"] == "settings"
    assert shown["ann"] == {name: value for name, value in ann.json.items() if name != "key"}
    assert (shown["ann"]["created_by"], shown["ann"]["weight"]) == ("admin", 2.0)
    assert (shown["a"]["share_prefixes"], shown["ann"]["share_prefixes"]) == (False, True)
    assert ann.json["key"].encode() not in listed.body
    assert ann.headers["cache-control"] == "no-store"


async def test_the_first_key_of_a_gateway_without_any_must_be_an_admin_s(rig: Rig) -> None:
    await rig.start(await rig.node())
    refused = await make(rig, name="ann")
    assert (refused.status, refused.json["error"]["param"]) == (400, "admin")
    boss = await made(rig, **BOSS)
    assert (await rig.get("/v1/models")).status == 401
    rig.headers = boss
    ann = await made(rig, name="ann")
    assert (await make(rig, ann, name="bob")).status == 403


async def test_keys_of_the_settings_are_read_only(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    for reply in (await revoke(rig, "a"), await make(rig, name="a")):
        assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")
    assert (await rig.get("/v1/models", A)).status == 200


async def test_the_last_admin_key_is_only_revoked_on_purpose(rig: Rig) -> None:
    await rig.start(await rig.node())
    rig.headers = await made(rig, **BOSS)
    assert (await revoke(rig, "boss")).status == 409
    await made(rig, name="other", admin=True)
    assert (await revoke(rig, "other")).status == 204
    assert (await revoke(rig, "boss?last=true")).status == 204
    rig.headers = {}
    assert (await rig.get("/v1/models")).status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": "a b"}, "name"),
        ({"name": "x", "max_priority": "urgent"}, "max_priority"),
        ({"name": "x", "key_env": "HOME"}, "key_env"),
        ({"name": "x", "key_sha256": "12"}, "key_sha256"),
        ({"name": "x", "max_runing": 1}, "max_runing"),
        *(
            ({"name": "x", limit: number}, limit)
            for limit in LIMITS
            for number in (-1, 1.5, 10**12 + 1, 10**20, float("nan"))
        ),
        *(({"name": "x", "weight": number}, "weight") for number in (0, 1e-4, 1001, float("inf"))),
    ],
)
async def test_what_no_key_can_be_is_refused_by_name(
    rig: Rig, fields: dict[str, Any], param: str
) -> None:
    await start(rig, await rig.node(), keys=[])
    refused = await make(rig, **fields)
    assert (refused.status, refused.json["error"]["param"]) == (400, param)
    assert [one["name"] for one in (await rig.get("/admin/keys")).json["data"]] == ["admin"]
    assert (await make(rig, name="x")).status == 201  # nothing of it was kept


async def test_whoever_makes_the_text_needs_to_tell_only_its_digest(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[])
    reply = await make(rig, name="ann", key_sha256=digest_of("my-own"))
    assert (reply.status, "key" in reply.json) == (201, False)
    assert (await rig.get("/v1/models", bearer("my-own"))).status == 200


async def test_a_name_that_no_key_can_have_is_not_found(rig: Rig, database_url: str) -> None:
    await start(rig, await rig.node(), keys=[], jobs={"database": database_url})
    assert [(await revoke(rig, name)).status for name in ("ann", "%00", "%F0%9F%98%80")] == [
        404
    ] * 3


@pytest.mark.parametrize("origin", ["http://evil.test", "null"])
async def test_a_page_of_another_origin_makes_and_revokes_nothing(rig: Rig, origin: str) -> None:
    await rig.start(await rig.node())
    assert (await make(rig, {"Origin": origin}, **BOSS)).status == 403
    boss = await made(rig, **BOSS)
    gone = await revoke(rig, "boss?last=true", {**boss, "Origin": origin})
    assert gone.status == 403
    assert (await rig.get("/v1/models", boss)).status == 200


async def test_only_digests_are_kept_and_actions_are_logged_with_who_did_them(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await start(rig, await rig.node(), keys=[])
    with caplog.at_level(logging.INFO, "forebay.gateway"):
        reply = await make(rig, name="ann")
        await revoke(rig, "ann")
        kept = await make(rig, name="bob")
    said = [(line.message, vars(line)["key"], vars(line)["by"]) for line in caplog.records]
    expected = [("key made", "ann"), ("key revoked", "ann"), ("key made", "bob")]
    assert said == [(*one, "admin") for one in expected]
    with closing(sqlite3.connect(rig.folder / "jobs.db")) as file:
        dump = "\n".join(file.iterdump())
    assert digest_of(kept.json["key"]) in dump
    for text in (reply.json["key"], kept.json["key"]):
        assert text not in dump
        assert text not in caplog.text


async def test_keys_survive_a_restart_and_nobody_is_let_in_without_one_meanwhile(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    boss = await made(rig, **BOSS)
    await rig.gateway.stop(0.0)
    await rig.start(node)
    assert (await rig.get("/v1/models")).status == 401
    assert (await rig.get("/v1/models", boss)).status == 200
    rig.headers = boss


async def test_a_reload_keeps_the_keys_that_were_made(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    ann = await made(rig, name="ann")
    rig.given["keys"] = [key("admin", admin=True)]
    assert (await rig.get("/admin/reload", method="POST")).json["changed"] == ["keys.a"]
    assert [(await rig.get("/v1/models", who)).status for who in (ann, A, ADMIN)] == [200, 401, 200]


async def test_a_mark_beside_the_file_shows_that_there_are_keys_from_before_the_first_to_the_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, mark = await rig.node(), rig.folder / "jobs.db.keys"
    await rig.start(node)
    store = await rig.gateway.parts.records.ready()
    add, marked = store.add_key, []

    def fail(_: KeyRecord) -> Future[bool]:
        marked.append(mark.exists())
        failed: Future[bool] = Future()
        failed.set_exception(StoreFailed("the disk is full"))
        return failed

    monkeypatch.setattr(store, "add_key", fail)
    assert (await make(rig, name="boss", admin=True)).status == 503
    assert (marked, mark.exists()) == ([True], False)
    monkeypatch.setattr(store, "add_key", add)
    rig.headers = await made(rig, **BOSS)
    await made(rig, name="ann")
    assert (mark.exists(), mark.read_bytes()) == (True, b"")
    mark.unlink()  # as in a database of an earlier version
    await rig.gateway.stop(0.0)
    await rig.start(node)
    assert mark.exists()
    assert (await revoke(rig, "ann")).status == 204
    assert mark.exists()
    assert (await revoke(rig, "boss?last=true")).status == 204
    assert not mark.exists()
    await rig.gateway.stop(0.0)
    rig.headers = {}
    await rig.start(node)
    assert (await rig.get("/v1/models")).status == 200


async def test_a_gateway_whose_database_lost_its_keys_opens_when_the_mark_is_deleted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    mark = rig.folder / "jobs.db.keys"
    mark.touch()
    await rig.start(await rig.node())
    assert (await rig.get("/v1/models")).status == 503
    assert f"delete {mark}" in caplog.text
    mark.unlink()
    await until(rig, {}, 200)


async def test_a_gateway_is_not_open_where_not_one_of_its_keys_can_be_used(
    rig: Rig, database_url: str
) -> None:
    store = RecordStore(database_url)
    store.open()
    odd = KeyRecord("odd", digest_of("sk-odd"), {"of_a_newer_version": True}, 0.0)
    assert store.add_key(odd).result(10)
    store.close()
    await rig.start(await rig.node(), jobs={"database": database_url})
    refused = await rig.get("/v1/models")
    assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable")


async def test_a_revoked_key_is_not_brought_back_by_an_older_reading(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(rig, await rig.node(), keys=[])
    records = rig.gateway.parts.records
    store = await records.ready()
    read, begun, gate = store.keys, asyncio.Event(), asyncio.Event()

    def read_late(known: int) -> Any:
        monkeypatch.undo()

        async def late() -> KeyTable | None:
            table = await asyncio.wrap_future(read(known))
            begun.set()
            await gate.wait()
            return table

        return asyncio.run_coroutine_threadsafe(late(), asyncio.get_running_loop())

    ann = KeyRecord("ann", digest_of("sk-ann"), {}, 0.0, "somebody", "key:a")
    monkeypatch.setattr(store, "keys", read_late)
    assert await asyncio.wrap_future(store.add_key(ann))  # by another gateway
    while not begun.is_set():
        rig.clock.advance(0.5)
        await rig.queue()
    revoking = asyncio.ensure_future(revoke(rig, "ann"))
    while (table := await asyncio.wrap_future(read(-1))) is not None and table.keys:
        await rig.queue()
    for _ in range(20):  # time for a second reading, were there one
        await rig.queue()
    reading = records._turn
    assert reading is not None
    gate.set()
    await reading
    assert (await revoking).status == 204
    assert records.keys.named("ann") is None


def let_settle(path: Path) -> None:
    """Have it look as if the last write was long ago."""
    for name in (path, f"{path}-wal"):
        os.utime(name, (1e9, 1e9))


async def test_the_keys_of_a_file_are_read_again_only_once_somebody_has_written_to_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(rig, await rig.node(), keys=[])
    await made(rig, name="ann")
    records = rig.gateway.parts.records
    store = await records.ready()
    read, reads = store.keys, []

    def read_counted(known: int) -> Any:
        reads.append(known)
        return read(known)

    monkeypatch.setattr(store, "keys", read_counted)

    async def take_turns(count: int) -> int:
        reads.clear()
        for _ in range(count):
            rig.clock.advance(0.5)
            while (turn := records._turn) is not None:
                await asyncio.wait([turn])
        return len(reads)

    assert await take_turns(4) == 4  # the file has just been written to: more may follow unseen
    let_settle(rig.folder / "jobs.db")
    assert await take_turns(4) == 1
    other = RecordStore(f"sqlite:///{rig.folder / 'jobs.db'}")
    other.open()
    added = other.add_key(KeyRecord("bob", digest_of("sk-bob"), {}, 0.0, "somebody", "key:b"))
    assert await asyncio.wrap_future(added)
    let_settle(rig.folder / "jobs.db")  # not to the time that it had: its size has changed, too
    assert await take_turns(4) == 1
    assert (await rig.get("/v1/models", bearer("sk-bob"))).status == 200
    other.close()


async def test_gateways_on_one_database_take_over_each_other_s_keys(
    rig: Rig, postgres_url: str
) -> None:
    await start(rig, await rig.node(), keys=[], jobs={"database": postgres_url})
    first = rig.gateway
    await start(rig, await rig.node(), keys=[], jobs={"database": postgres_url})
    ann = await made(rig, name="ann")
    second, rig.gateway = rig.gateway, first
    await until(rig, ann, 200)
    assert (await revoke(rig, "ann")).status == 204
    rig.gateway = second
    await until(rig, ann, 401)
