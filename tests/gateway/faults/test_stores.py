"""Database files that are lost in use, or cannot be read at the start: rows 70 and 71."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.http import lazy_open
from forebay.gateway.records import service
from forebay.records.keys import KeyRecord
from forebay.records.store import RecordStore
from forebay.settings import digest_of
from forebay.storage import database as database_module

from .conftest import ADMIN, CHAT, FIRST, SECOND, FaultRig, bearer, key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from forebay.testing import Call, Reply

OK: dict[str, object] = {"choices": []}
LIMIT_S = 10.0
FORM = b"--b\r\nContent-Disposition: form-data; name=%b\r\n\r\n%b\r\n"
UPLOAD = FORM % (b'"purpose"', b"batch") + FORM % (b'"file"; filename="f"', b"{}") + b"--b--\r\n"
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}
JSON = {"content-type": "application/json"}


async def answer(call: Call) -> None:
    await call.answer(OK)


async def post(rig: FaultRig, path: str, body: bytes, headers: dict[str, str] = JSON) -> Reply:
    return await rig.get(path, headers, "POST", body=body)


async def promises(rig: FaultRig, file: str, session: str, number: int) -> set[int]:
    """Ask for everything that is stored before it is acknowledged; return the statuses."""
    batch = f'"input_file_id":"{file}","endpoint":"/v1/completions","completion_window":"24h"'
    asked = {
        "/jobs": f'"type":"chat","params":{{"model":"m","messages":[{number}]}}',
        "/v1/batches": batch,
        "/admin/keys": f'"name":"k{number}"',
        f"/session/{session}/prompt": '"prompt":"hi"',
        "/session": '"model":"m"',
    }
    replies = [await post(rig, path, b"{%b}" % body.encode()) for path, body in asked.items()]
    replies.append(await post(rig, "/v1/files", UPLOAD, MULTIPART))
    return {reply.status for reply in replies}


def move_away(file: Path) -> None:
    file.rename(f"{file}.kept")


def replace(file: Path) -> None:
    """Put another database at its path, as a backup that is restored would be."""
    backup = file.with_name("backup.db")
    with closing(sqlite3.connect(backup)) as other, other:
        other.execute("CREATE TABLE t (x)")
    move_away(file)
    os.replace(backup, file)


def move_wal_away(file: Path) -> None:
    wal = file.with_name(f"{file.name}-wal")
    wal.rename(f"{wal}.kept")


@pytest.mark.parametrize("lose", [move_away, replace, move_wal_away])
async def test_fault_70_nothing_is_promised_while_the_file_is_not_the_one_at_its_path(
    rig: FaultRig,
    lose: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(database_module, "CHECK_S", 0.0)
    node = await rig.node()
    node.automatic = answer
    parts = (await rig.start(node, keys=[key("admin", admin=True)])).parts
    rig.headers = bearer(ADMIN)
    file = (await post(rig, "/v1/files", UPLOAD, MULTIPART)).json["id"]
    session = (await post(rig, "/session", b'{"model":"m"}')).json["sessionId"]

    async def troubles() -> list[str]:
        seen = parts.dashboard_feed.snapshot(await parts.queue_observer.observation())
        return [one.text.en.split()[3] for one in seen.troubles if one.code == "database_lost"]

    for name in ("jobs.db", "jobs.sessions.db"):
        lose(rig.folder / name)
    assert await promises(rig, file, session, 1) == {503}
    live = await rig.ask(headers=rig.headers)
    assert (await live.reply()).status == 200
    assert (await rig.get("/v1/models", {"authorization": "none"})).status == 401
    assert await troubles() == ["jobs.database", "sessions.database"]
    assert "jobs.db (or its -wal) was deleted or replaced" in caplog.text
    for kept in rig.folder.glob("*.kept"):
        os.replace(kept, str(kept).removesuffix(".kept"))
    assert await promises(rig, file, session, 2) == {200, 201, 202}
    assert await troubles() == []
    await rig.gateway.stop(0.0)


@contextmanager
def replaced(by: bytes | None, file: Path, _: pytest.MonkeyPatch) -> Iterator[None]:
    """Have something else at the path of the database, or nothing."""
    move_away(file)
    if by is not None:
        file.write_bytes(by)
    yield
    assert file.exists() == (by is not None), "a new one would be in the way of the one restored"
    os.replace(f"{file}.kept", file)


@contextmanager
def locked(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(database_module, "BUSY_MS", 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def slow(_: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the database take longer to open than the start waits for it."""
    goes_on, really = threading.Event(), RecordStore.open

    def late(store: RecordStore) -> None:
        assert goes_on.wait(LIMIT_S)
        really(store)

    monkeypatch.setattr(service, "START_S", 0.0)
    monkeypatch.setattr(lazy_open, "ANSWER_S", 0.0)
    monkeypatch.setattr(RecordStore, "open", late)
    yield
    goes_on.set()


HARMS = {
    "garbage": partial(replaced, b"this is no database" * 100),
    "empty": partial(replaced, b""),
    "missing": partial(replaced, None),
    "locked": locked,
    "slow": slow,
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
async def test_fault_71_until_the_keys_are_read_only_those_of_the_settings_are_served(
    rig: FaultRig,
    harm: Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = rig.folder / "jobs.db"
    store = RecordStore(f"sqlite:///{file}")
    store.open()
    digest = digest_of(SECOND)
    assert store.add_key(KeyRecord("second", digest, {"admin": True}, 0.0)).result(LIMIT_S)
    store.close()
    file.with_name("jobs.db.keys").touch()
    rig.expected_errors = ["cannot be read"]
    node = await rig.node()
    node.automatic = answer
    rig.headers = {}
    with harm(file, monkeypatch):
        await rig.start(node, keys=[key("first")])
        await rig.healthy()
        for path in ("/ready", "/", "/capabilities", "/openapi.json", "/metrics", "/v1/models"):
            refused = await rig.get(path)
            assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable")
        for who in ({}, bearer(SECOND)):
            for method, path in (("POST", CHAT), ("POST", "/admin/nodes"), ("GET", "/jobs")):
                assert (await rig.get(path, who, method)).status == 503, (who, path)
        live = await rig.ask(headers=bearer(FIRST))
        assert (await live.reply()).status == 200
        assert (await post(rig, "/session", b'{"model":"m"}', bearer(FIRST))).status == 503
        assert "jobs.db (jobs.database) cannot be read" in caplog.text
    rig.headers = bearer(FIRST)
    while (await rig.get("/v1/models", bearer(SECOND))).status != 200:
        rig.clock.advance(0.5)
    assert (await rig.get("/v1/models", {"authorization": "none"})).status == 401
