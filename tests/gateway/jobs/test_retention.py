"""What a gateway deletes because of its age: its own jobs only, and it counts them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from ..conftest import OK
from .job_steps import chat, job, submit, until, until_metrics_say

if TYPE_CHECKING:
    from ..conftest import Rig

LONG_AGO_S = 31 * 86_400


async def start_with_old_jobs(rig: Rig, *types: str) -> list[int]:
    """Start a gateway on a database of jobs that ended long ago, one of each type."""
    node = await rig.node()
    gateway = await rig.start(node)
    made = []
    for number in range(len(types)):
        made.append(await submit(rig, chat(number)))
        await (await node.next_call()).answer(OK)
        await until(rig, made[-1], "completed")
    await gateway.stop(0.0)
    with sqlite3.connect(rig.folder / "jobs.db") as connection:
        connection.execute(f"UPDATE jobs SET finished_at = finished_at - {LONG_AGO_S}")
        for job_id, name in zip(made, types, strict=True):
            connection.execute("UPDATE jobs SET task_type = ? WHERE id = ?", (name, job_id))
    connection.close()
    await rig.start(node)
    return made


async def test_what_was_deleted_is_counted_by_kind(rig: Rig) -> None:
    await start_with_old_jobs(rig, "chat", "completion")
    text = await until_metrics_say(rig, 'forebay_retention_deleted_total{kind="job"} 2.0')
    for kind in ("batch", "file", "usage", "record"):
        assert f'forebay_retention_deleted_total{{kind="{kind}"}} 0.0' in text


async def test_jobs_of_an_apps_own_runner_are_not_for_the_gateway_to_delete(rig: Rig) -> None:
    theirs, ours = await start_with_old_jobs(rig, "cover_letter", "chat")
    while (await rig.get(f"/jobs/{ours}")).status == 200:
        pass
    assert (await job(rig, theirs))["status"] == "completed"
