"""An app's own task types inside the gateway: `jobs.modules`."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from forebay.errors import StoreFailed
from forebay.jobs import get_runner
from forebay.jobs.runner.singleton import BadModule

from .job_steps import job, post, submit, until, until_metrics_say

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import Rig

TASKS = """
    import threading
    from forebay.jobs import get_runner

    runner = get_runner()
    go_on = threading.Event()

    @runner.task("shout", vram_gb=2.5)
    def shout(task):
        task.stage("shouting")
        return task.params["text"].upper()

    @runner.task("fail")
    def fail(task):
        raise ValueError("no such thing")

    @runner.task("hold", vram_gb=1.5)
    async def hold(task):
        import asyncio
        await asyncio.Event().wait()

    @runner.task("sync", llm=False)
    def sync(task):
        go_on.wait(10)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An app's module, under a name of the test's own."""
    name = f"tasks_of_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(TASKS))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


async def test_an_apps_own_type_runs_in_the_gateway(rig: Rig, module: str) -> None:
    await rig.start(await rig.node(), jobs={"modules": [module]})
    job_id = await submit(rig, {"type": "shout", "params": {"text": "hello"}, "job_id": 3})
    done = await until(rig, job_id, "completed")
    assert (done["result"], done["job_id"], done["type"]) == ("HELLO", 3, "shout")


async def test_a_handler_that_raises_fails_its_job_with_message_and_traceback(
    rig: Rig, module: str
) -> None:
    await rig.start(await rig.node(), jobs={"modules": [module]})
    failed = await until(rig, await submit(rig, {"type": "fail"}), "failed")
    assert failed["error"] == "ValueError: no such thing"
    assert failed["error_code"] == "handler_failed"
    assert "raise ValueError" in failed["traceback"]
    following = await submit(rig, {"type": "shout", "params": {"text": "on"}})
    assert (await until(rig, following, "completed"))["result"] == "ON"


async def test_a_running_handler_is_cancelled_and_its_memory_is_free(rig: Rig, module: str) -> None:
    await rig.start(await rig.node(), jobs={"modules": [module], "available_vram_gb": 2})
    job_id = await submit(rig, {"type": "hold"})
    await until(rig, job_id, "running")
    await until_metrics_say(rig, "forebay_vram_reserved_bytes 1.610612736e+09")
    assert (await rig.get(f"/jobs/{job_id}", method="DELETE")).status == 200
    await until_metrics_say(rig, "forebay_vram_reserved_bytes 0.0")
    assert (await job(rig, job_id))["status"] == "cancelled"


async def test_an_unknown_type_is_refused_with_the_nearest_one(rig: Rig, module: str) -> None:
    await rig.start(await rig.node(), jobs={"modules": [module]})
    reply = await post(rig, {"type": "shuot", "params": {}})
    assert (reply.status, reply.json["error"]["param"]) == (400, "type")
    assert "did you mean 'shout'?" in reply.json["error"]["message"]


async def test_after_a_restart_bypass_jobs_fail_and_unknown_types_too(
    rig: Rig, module: str
) -> None:
    gateway = await rig.start(await rig.node(), jobs={"modules": [module]})
    running = await submit(rig, {"type": "sync"})
    await until(rig, running, "running")
    queued = await submit(rig, {"type": "hold", "params": {"n": 1}})
    second = await submit(rig, {"type": "hold", "params": {"n": 2}})
    await until(rig, queued, "running")
    sys.modules[module].go_on.set()
    await until(rig, running, "completed")
    await gateway.stop(0.0)
    await rig.start(await rig.node())  # without the module
    for job_id in (queued, second):
        failed = await job(rig, job_id)
        assert (failed["status"], failed["error_code"]) == ("failed", "no_handler")
    with pytest.raises(StoreFailed, match="unable to open"):
        get_runner("sqlite:////nowhere/at/all.db")  # the gateway's own is forgotten


async def test_a_module_that_cannot_be_imported_keeps_the_gateway_from_starting(
    rig: Rig,
) -> None:
    with pytest.raises(BadModule, match=r"jobs\.modules: no_such_module"):
        await rig.start(await rig.node(), jobs={"modules": ["no_such_module"]})


async def test_who_asks_while_the_types_are_loaded_waits_and_fails_nobodys_jobs(
    rig: Rig, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await rig.start(await rig.node(), jobs={"modules": [module], "available_vram_gb": 2})
    await until(rig, await submit(rig, {"type": "hold", "params": {"n": 1}}), "running")
    queued = await submit(rig, {"type": "shout", "params": {"text": "left over"}})
    await gateway.stop(0.0)

    gate = ModuleType("gate")
    reached, opened = threading.Event(), threading.Event()
    vars(gate).update(reached=reached, opened=opened)
    monkeypatch.setitem(sys.modules, "gate", gate)
    monkeypatch.delitem(sys.modules, module)
    waits = "import gate\ngate.reached.set()\ngate.opened.wait(30)\n"
    (tmp_path / f"{module}_slow.py").write_text(waits + textwrap.dedent(TASKS))
    starting = asyncio.create_task(rig.start(jobs={"modules": [f"{module}_slow"]}))
    assert await asyncio.to_thread(reached.wait, 30)
    early = asyncio.create_task(rig.get("/jobs"))
    new = asyncio.create_task(post(rig, {"type": "shout", "params": {"text": "new"}}))
    _, waiting = await asyncio.wait({early, new}, timeout=0.2)
    opened.set()
    await starting
    assert waiting == {early, new}
    assert ((await early).status, (await new).status) == (200, 202)
    assert (await until(rig, queued, "completed"))["result"] == "LEFT OVER"


async def test_a_second_gateway_on_the_same_file_has_no_jobs_but_serves(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await rig.node()
    first = await rig.start(node)
    await submit(rig)
    await (await node.next_call()).answer({"choices": []})
    await rig.start(node)
    reply = await post(rig, {"type": "chat", "params": {"model": "m"}})
    assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
    assert "another runner" in caplog.text
    await first.stop(0.0)
    assert (await post(rig, {"type": "chat", "params": {"model": "m"}})).status == 202
    await (await node.next_call()).answer({"choices": []})
