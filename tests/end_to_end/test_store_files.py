"""The files of a gateway's databases, while other programs open, copy and take them away."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.records.keys import KeyRecord
from forebay.records.store import RecordStore
from forebay.settings import digest_of
from forebay.testing import FakeNode
from harness.polling import pause

from .conftest import LIMIT_S

if TYPE_CHECKING:
    from forebay.testing import Reply

    from .conftest import Command, Shell

LOCKS = Path("/proc/locks")
DATABASES = ("forebay.db", "forebay.sessions.db")
JOBS = 40
READ = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM jobs')"
BACK_UP = "c.backup(b := sqlite3.connect(sys.argv[2])); b.close()"
OLD, NEW = ({"Authorization": f"Bearer sk-{name}-0123456789"} for name in ("old", "new"))


async def serve(shell: Shell, node: FakeNode, folder: Path, *words: str) -> tuple[Command, int]:
    database = f"jobs.database=sqlite:///{folder / DATABASES[0]}"
    return await shell.serve("--node", node.url, "--set", database, *words, cwd=folder)


async def ask(
    shell: Shell, port: int, path: str, who: dict[str, str], body: object = None
) -> Reply:
    """POST where there is a body, else GET."""
    client = await shell.connect(port)
    await (client.get(path, who) if body is None else client.post(path, body, who))
    return await client.reply()


def job(number: int = 0) -> dict[str, Any]:
    return {"type": "chat", "params": {"model": "m", "messages": [number]}}


def admin_key(name: str, who: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "admin": True, "key_sha256": digest_of(who["Authorization"][7:])}


async def in_another_program(*words: str) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", *words)
    assert await child.wait() == 0


def locked() -> set[int]:
    """Return the inodes of all files on which somebody holds POSIX locks."""
    lines = [line.split() for line in LOCKS.read_text().splitlines()]
    return {int(line[5].rpartition(":")[2]) for line in lines if line[1] == "POSIX"}


async def test_a_gateway_holds_its_locks_on_every_database_that_it_has_open(
    shell: Shell, tmp_path: Path
) -> None:
    async with FakeNode() as node:
        _, port = await serve(shell, node, tmp_path)
        asked = {"/jobs": job(), "/session": {"model": "m"}, "/v1/usage": None}
        for path, body in {**asked, "/admin/keys": admin_key("old", OLD)}.items():
            assert (await ask(shell, port, path, {}, body)).status in (200, 201, 202), path
        held = locked()
        for name in DATABASES:
            found = (tmp_path / name).stat()
            assert found.st_ino in held, name
            assert found.st_mode & 0o077 == 0, name


async def test_fault_69_other_programs_at_the_database_file_cost_no_job_no_revocation_no_backup(
    shell: Shell, tmp_path: Path
) -> None:
    file, copy = str(tmp_path / "forebay.db"), str(tmp_path / "copy.db")
    async with FakeNode(slots=1) as node:
        gateway, port = await serve(shell, node, tmp_path)
        await ask(shell, port, "/admin/keys", {}, admin_key("old", OLD))
        await ask(shell, port, "/admin/keys", OLD, admin_key("new", NEW))
        assert (await ask(shell, port, "/jobs", NEW, job())).status == 202
        await in_another_program(READ, file)
        client = await shell.connect(port)
        await client.request("DELETE", "/admin/keys/old", b"", NEW)
        assert (await client.reply()).status == 204
        second, _ = await serve(shell, node, tmp_path)
        second.signal(signal.SIGTERM)
        await second.ends()
        replies = [await ask(shell, port, "/jobs", NEW, job(1 + number)) for number in range(JOBS)]
        assert {reply.status for reply in replies} == {202}
        accepted = [reply.json["id"] for reply in replies]
        await in_another_program(f"{READ}; {BACK_UP}", file, copy)
        gateway.signal(signal.SIGKILL)
        await gateway.ends()
        _, port = await serve(shell, node, tmp_path)
        found = [(await ask(shell, port, f"/jobs/{one}", NEW)).status for one in accepted]
        assert found == [200] * JOBS
        assert (await ask(shell, port, "/v1/models", OLD)).status == 401
    with closing(sqlite3.connect(copy)) as backup:
        assert backup.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert {row[0] for row in backup.execute("SELECT id FROM jobs")} >= set(accepted)
        assert backup.execute("SELECT name FROM api_keys").fetchall() == [("new",)]


async def test_fault_71_no_worker_is_open_before_the_leader_has_read_the_keys(
    shell: Shell, tmp_path: Path
) -> None:
    file, kept = tmp_path / "forebay.db", tmp_path / "kept.db"
    store = RecordStore(f"sqlite:///{kept}")
    store.open()
    digest = admin_key("new", NEW)["key_sha256"]
    assert store.add_key(KeyRecord("new", digest, {"admin": True}, 0.0)).result(LIMIT_S)
    store.close()
    file.write_bytes(b"this is no database" * 100)
    async with FakeNode() as node:
        gateway, port = await serve(shell, node, tmp_path, "--set", "server.workers=2")

        async def statuses(who: dict[str, str], path: str = "/v1/models") -> set[int]:
            """Ask often enough that both workers answer."""
            return {(await ask(shell, port, path, who)).status for _ in range(20)}

        assert [await statuses({}), await statuses(NEW)] == [{503}] * 2
        assert await statuses({}, "/health") == {200}
        assert str(file) in await gateway.says("cannot be read")
        os.replace(kept, file)
        async with asyncio.timeout(LIMIT_S):
            while await statuses(NEW) != {200}:
                await pause()
        assert await statuses({}) == {401}
