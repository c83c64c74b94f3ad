"""`forebay batch list|show|cancel` and `forebay sessions`: what a gateway has, one row each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.testing import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Desk

LINE = {
    "custom_id": "1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "no-such", "messages": []},
}


@pytest.fixture
async def gateway(desk: Desk, tmp_path: Path) -> Desk:
    database = {"database": f"sqlite:///{tmp_path}/jobs.db"}
    await desk.start(await desk.node(), jobs=database)
    return desk


async def test_an_ended_batch_is_listed_shown_and_not_cancelled(
    gateway: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    none = await gateway.run("batch", "list")
    assert none.stdout.startswith("There are no batches. Run a file of requests with:")
    (tmp_path / "list").write_text(json.dumps(LINE) + "\n")  # needs ./ before it
    run = await gateway.run("batch", "./list")
    assert run.exit_code == 1, run.output
    assert "model_not_found" in (tmp_path / "list.errors.jsonl").read_text()
    (batch,) = json.loads((await gateway.run("batch", "list", "--json")).stdout)
    rows = (await gateway.run("batch", "list", "--status", "completed")).stdout.splitlines()
    assert len(rows) == 2
    asked = "no-such"
    for model, count in ((asked, 1), (asked.upper(), 0)):
        found = await gateway.run("batch", "list", "--model", model, "--json")
        assert len(json.loads(found.stdout)) == count
    nothing = await gateway.run("batch", "list", "--model", asked, "--status", "failed")
    assert nothing.stdout.startswith("There are no such batches.")
    assert rows[1].split()[:2] == [batch["id"], "completed"]
    shown = await gateway.run("batch", "show", batch["id"])
    assert "0 answered, 1 failed, 1 in all" in shown.stdout
    refused = await gateway.run("batch", "cancel", batch["id"], "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)[0]["error"]["code"] == "conflict"
    assert (await gateway.run("batch", "list", "--status", "done")).exit_code == 2


async def test_sessions_are_listed_shown_and_deleted(gateway: Desk) -> None:
    none = await gateway.run("sessions")
    assert none.stdout.startswith("There are no sessions. Start one with:")
    async with await RawClient.connect("127.0.0.1", gateway.gateway.port) as client:
        await client.post("/session", json.dumps({"model": "m", "system": "Be brief."}).encode())
        session = (await client.reply()).json["sessionId"]
    rows = (await gateway.run("sessions", "list")).stdout.splitlines()
    assert rows[1].split()[:3] == [session, "m", "idle"]
    assert "Be brief." in (await gateway.run("sessions", "show", session)).stdout
    done = await gateway.run("sessions", "delete", session, "ses_none")
    assert f"Session {session} is deleted." in done.stdout
    assert done.exit_code == 1
    assert json.loads((await gateway.run("sessions", "--json")).stdout)["data"] == []
