"""Database files that are lost in use: row 70."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from forebay.storage import database as database_module

from .conftest import ADMIN, FaultRig, bearer, key

if TYPE_CHECKING:
    from collections.abc import Callable
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
