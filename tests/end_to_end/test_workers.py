"""`server.workers`: several processes, one port, one queue; and what happens when one dies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from forebay.cli.serve.supervisor import LOOK_S, SILENT_LOOKS_MAX
from forebay.nodes.sim.engine import SimOptions
from forebay.testing import FakeNode
from harness.polling import pause

from .conftest import LIMIT_S
from .worker_rig import Workers, samples

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import RawClient

    from .conftest import Shell

ONE_SLOT = SimOptions(models=("m",), slots=1, ttft_s=0.0, tokens_per_second=50.0)
FAST = SimOptions(models=("m",), slots=8, ttft_s=0.0, tokens_per_second=0.0)
ENDLESS = {"max_tokens": 100_000, "ignore_eos": True}
CHAT_OF_M = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SERVED = 'forebay_requests_total{outcome="served",route="/v1/chat/completions"}'


async def stream_of(workers: Workers, number: int) -> RawClient:
    """Return a stream of a given worker that has begun, and does not end by itself."""
    running = await workers.ask(number, model="m", stream=True, **ENDLESS)
    assert (await running.head()).status == 200
    assert await running.chunk() is not None
    return running


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await pause()


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


# -- one gateway


async def test_a_request_of_one_worker_waits_for_the_slot_that_another_uses(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(ONE_SLOT))
    running = await stream_of(workers, 0)
    waiting = await workers.ask(1, model="m", max_tokens=2)
    await workers.until_waiting(1)
    seen = [(await workers.get(number, "/v1/queue")).json for number in (0, 1)]
    assert [(one["waiting"], one["processing"]) for one in seen] == [(1, 1), (1, 1)]
    assert not any("fleet" in one for one in seen)
    running.close()
    reply = await waiting.reply()
    assert (reply.status, reply.headers["x-queue-status"]) == (200, "queued")


async def test_workers_find_the_slots_of_a_node_together_and_the_next_leader_keeps_them(
    shell: Shell, tmp_path: Path
) -> None:
    node = await shell.sim_node(SimOptions(models=("m",), slots=4, ttft_s=0.02))
    config = tmp_path / "forebay.toml"
    config.write_text(f'[[nodes]]\nname="gpu1"\nurl="{node}"\nkind="openai"\n')
    workers = await Workers.serve(shell, "--config", str(config))

    async def asks(number: int) -> None:
        client = await workers.connect(number)
        for _ in range(10):
            await client.post("/v1/chat/completions", {**CHAT_OF_M, "max_tokens": 5})
            assert (await client.reply()).status == 200

    await asyncio.gather(*(asks(number) for number in (0, 1) for _ in range(6)))
    told = workers.found_slots()
    assert (told[0], told[-1]) == (8, 4), "twice as many as at first; the node refuses them"
    assert told.count(8) == 1, "one finds them, for both, and says so"
    workers.kill(workers.leader)
    await workers.all_there()
    for number in (0, 1):
        (seen,) = (await workers.get(number, "/admin/nodes")).json["data"]
        assert seen["slots"] == 4


async def test_a_key_made_at_one_worker_is_in_force_at_all_and_outlives_the_leader(
    shell: Shell, tmp_path: Path
) -> None:
    workers = await Workers.serve(
        shell, "--node", await shell.sim_node(FAST), "--set", "server.public_status=true",
        "--set", f"jobs.database=sqlite:///{tmp_path}/jobs.db",
    )  # fmt: skip
    boss = {"name": "boss", "admin": True}
    made = (await workers.post(workers.follower, "/admin/keys", boss)).json
    holder = {"Authorization": f"Bearer {made['key']}"}

    async def asked(number: int, headers: dict[str, str]) -> int:
        client = await workers.connect(number)
        await client.get("/v1/models", headers)
        status = (await client.reply()).status
        client.close()
        return status

    async with asyncio.timeout(LIMIT_S):
        for number in (workers.leader, workers.follower):
            while await asked(number, {}) != 401:
                await pause()
            assert await asked(number, holder) == 200
    follower = workers.follower
    workers.kill(workers.leader)
    assert [await asked(follower, {}), await asked(follower, holder)] == [401, 200]
    await workers.all_there()
    for number in (0, 1):
        assert [await asked(number, {}), await asked(number, holder)] == [401, 200]


async def test_who_was_refused_by_one_worker_has_its_place_at_another(shell: Shell) -> None:
    workers = await Workers.serve(
        shell, "--node", await shell.sim_node(ONE_SLOT),
        "--set", "queue.fairness=fifo", "--set", "queue.max_size=2",
    )  # fmt: skip
    running = await stream_of(workers, 0)
    waiting = [await workers.ask(number, model="m", user="first") for number in (0, 1)]
    await workers.until_waiting(2)
    newcomer, back = await workers.connect(0), await workers.connect(workers.leader)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    late = await workers.connect(workers.follower)
    await late.post("/v1/chat/completions", {**body, "user": "late"})
    assert (await late.reply()).status == 429
    for gone, client, user in ((waiting[0], newcomer, "new"), (waiting[1], back, "late")):
        gone.close()
        await workers.until_waiting(1)
        await client.post("/v1/chat/completions", {**body, "user": user})
        await workers.until_waiting(2)
    running.close()
    places = [(await client.reply()).headers["x-queue-position"] for client in (back, newcomer)]
    assert places == ["1", "2"]


async def test_metrics_add_up_whichever_worker_answers(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    for number, count in ((0, 3), (1, 4)):
        for _ in range(count):
            assert (await (await workers.ask(number, model="m")).reply()).status == 200
    for number in (0, 1):
        seen = samples((await workers.get(number, "/metrics")).body)
        assert seen[SERVED] == 7
        assert seen["forebay_request_seconds_count"] == 7
        assert seen["forebay_workers"] == 2
        assert 'forebay_replicas{state="leading"}' not in seen


async def test_a_request_is_found_by_its_id_whichever_worker_is_asked(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(ONE_SLOT))
    await stream_of(workers, workers.follower)
    waiting = await workers.connect(workers.follower)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    await waiting.post("/v1/chat/completions", body, {"X-Request-Id": "mine"})
    await workers.until_waiting(1)
    for number in (0, 1):
        shown = await workers.get(number, "/v1/queue/mine")
        assert (shown.status, shown.json["state"], shown.json["position"]) == (200, "waiting", 1)
    client = await workers.connect(workers.leader)
    await client.request("DELETE", "/v1/queue/mine")
    assert (await client.reply()).json == {"id": "mine", "state": "cancelled"}
    assert (await waiting.reply()).status == 499


async def test_nodes_are_added_and_drained_for_all_workers(shell: Shell) -> None:
    other = SimOptions(models=("other",), slots=1, ttft_s=0.0, tokens_per_second=0.0)
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    url = await shell.sim_node(other)
    added = await workers.post(workers.follower, "/admin/nodes", {"name": "late", "url": url})
    assert added.status == 201, added.body
    for number in (0, 1):
        async with asyncio.timeout(LIMIT_S):
            while "other" not in str((await workers.get(number, "/v1/models")).json):
                await pause()
        assert (await (await workers.ask(number, model="other")).reply()).status == 200
    drained = await workers.post(workers.follower, "/admin/nodes/late/drain", {})
    assert drained.json["state"] == "draining"
    async with asyncio.timeout(LIMIT_S):
        while "other" in str((await workers.get(workers.follower, "/v1/models")).json):
            await pause()


async def test_a_file_passes_through_a_worker_that_does_not_lead(
    shell: Shell, tmp_path: Path
) -> None:
    limits = ("--set", "server.body_max_bytes=100000")
    workers = await Workers.serve(
        shell, "--node", await shell.sim_node(FAST), *limits, cwd=tmp_path
    )
    line = b'{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{}}\n'
    content = b"".join(line % number for number in range(20_000))  # more than any body may have
    head = b"--b\r\ncontent-disposition: form-data; name=%b\r\n\r\n"
    form = head % b'"purpose"' + b"batch\r\n"
    form += head % b'"file"; filename="f.jsonl"' + content + b"\r\n--b--\r\n"
    client = await workers.connect(workers.follower)
    await client.send(
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n"
        b"content-type: multipart/form-data; boundary=b\r\n\r\n" % len(form) + form
    )
    stored = await client.reply()
    assert (stored.status, stored.json["bytes"]) == (200, len(content)), stored.body
    read = await workers.get(workers.follower, f"/v1/files/{stored.json['id']}/content")
    assert read.body == content


async def test_a_client_cannot_pass_for_another_one_at_the_leader(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    for number in (0, 1):
        client = await workers.connect(number)
        await client.get("/admin/nodes", {"X-Forebay-Client": "127.0.0.1", "X-Real-IP": "10.0.0.1"})
        assert (await client.reply()).status == 403
        assert (await workers.get(number, "/admin/nodes")).status == 200


async def test_the_page_of_a_worker_that_does_not_lead_shows_what_all_have_done(
    shell: Shell,
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    for number in (0, 1):
        assert (await (await workers.ask(number, model="none")).reply()).status == 404
    watching = await workers.connect(workers.follower)
    await watching.get("/events")
    assert (await watching.head()).status == 200
    shown = b""
    async with asyncio.timeout(LIMIT_S):
        while not re.search(rb'"code":"model_not_found",[^{]*"total":2,', shown):
            shown += await watching.chunk() or b""
    assert b'"fleet"' not in shown


# -- one worker dies


async def test_a_guard_that_spoke_to_the_dead_leader_is_known_to_the_next(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GUARD_TOKEN", "open-sesame-4711")
    workers = await Workers.serve(shell, "--set", "guard.token_env=GUARD_TOKEN")
    url = f"http://127.0.0.1:{workers.port}"
    node = await shell.sim_node(FAST)
    guard = await shell.start(
        "node", "--port", "0", "--backend", node, "--gateway", url, "--name", "gpu1",
        "--token-env", "GUARD_TOKEN",
    )  # fmt: skip
    await workers.gateway.says("node is online")
    heir = workers.follower
    workers.kill(workers.leader)
    await until(lambda: workers.leader == heir)
    for number in (0, 1):
        reply = await (await workers.ask(number, model="m")).reply()
        assert (reply.status, reply.headers["x-forebay-node"]) == (200, "gpu1")
    guard.signal(signal.SIGTERM)
    async with asyncio.timeout(LIMIT_S):
        while (await workers.get(heir, "/admin/nodes")).json["data"]:
            await pause()


async def test_the_embedded_model_of_a_dead_leader_is_started_again_by_the_next(
    shell: Shell, tiny_gguf: Path
) -> None:
    workers = await Workers.serve(shell, "--gguf", str(tiny_gguf))
    (model,) = (await workers.get(workers.follower, "/v1/models")).json["data"]
    heir = workers.follower
    workers.kill(workers.leader)
    await until(lambda: workers.leader == heir)
    for number in (0, 1):
        client = await workers.ask(number, model=model["id"], max_tokens=4, ignore_eos=True)
        reply = await client.reply()
        assert (reply.status, reply.headers["x-forebay-node"]) == (200, "embedded")


async def test_a_killed_worker_is_replaced_and_its_slot_goes_to_one_that_waits(
    shell: Shell,
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(ONE_SLOT))
    dead = workers.follower
    pid = workers.pid(dead)
    await stream_of(workers, dead)
    waiting = await workers.ask(workers.leader, model="m", max_tokens=2)
    await workers.until_waiting(1)
    workers.kill(dead)
    reply = await waiting.reply()
    assert reply.status == 200
    assert int(reply.headers["x-queue-wait-ms"]) < 60_000
    await until(lambda: workers.pid(dead) != pid)
    await workers.all_there()
    assert (await (await workers.ask(dead, model="m", max_tokens=2)).reply()).status == 200


async def test_connections_that_a_dead_worker_had_not_accepted_are_answered_by_another(
    shell: Shell,
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    os.kill(workers.pid(workers.follower), signal.SIGSTOP)  # about half of them wait for it
    clients = [await shell.connect(workers.port) for _ in range(40)]
    for client in clients:
        await client.get("/health")
    workers.kill(workers.follower)
    assert {(await client.reply()).status for client in clients} == {200}


async def test_when_the_leader_is_killed_another_takes_over_and_no_waiting_request_fails(
    shell: Shell, tmp_path: Path
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(ONE_SLOT), cwd=tmp_path)
    dead, heir = workers.leader, workers.follower
    session = (await workers.post(heir, "/session", {"model": "m"})).json["sessionId"]
    for _ in range(3):
        await (await workers.ask(dead, model="m", max_tokens=2)).reply()
    assert (await workers.metrics())[SERVED] == 3
    running = await stream_of(workers, heir)
    waiting = [await workers.ask(heir, model="m", max_tokens=2) for _ in range(3)]
    await workers.until_waiting(3)
    workers.kill(dead)
    await until(lambda: workers.leader == heir)
    assert await running.chunk() is not None  # it goes on
    running.close()
    assert [(await client.reply()).status for client in waiting] == [200, 200, 200]
    assert (await workers.get(heir, f"/session/{session}")).status == 200
    await workers.all_there()
    assert (await workers.get(dead, f"/session/{session}")).status == 200
    assert (await workers.metrics())[SERVED] >= 6, "what the dead one had counted is kept"


async def test_a_leader_that_hangs_is_killed_and_replaced_but_none_when_all_are_stopped(
    shell: Shell,
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    stopped, heir = workers.leader, workers.follower
    pids = [workers.pid(0), workers.pid(1)]
    everyone = [workers.gateway.pid, *pids]
    signal_all(everyone, signal.SIGSTOP)
    await pause(1.5 * LOOK_S * SILENT_LOOKS_MAX)  # Ctrl-Z, and some time later `fg`
    signal_all(everyone, signal.SIGCONT)
    assert [(await workers.get(number, "/health")).status for number in (0, 1)] == [200, 200]
    os.kill(pids[stopped], signal.SIGSTOP)
    hanging = [await shell.connect(workers.port) for _ in range(20)]
    try:
        for client in hanging:
            await client.get("/health")
        await until(lambda: workers.leader == heir)
        assert {(await client.reply()).status for client in hanging} == {200}
        await workers.all_there()
    finally:
        signal_all(everyone, signal.SIGCONT)
    assert workers.pid(heir) == pids[heir]
    hung = [len(workers.logged(f"worker {number} hangs: killing it")) for number in (stopped, heir)]
    assert hung == [1, 0]


async def test_what_was_counted_before_a_leader_died_is_no_news_to_the_next(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    for number in (0, 1):
        assert (await (await workers.ask(number, model="none")).reply()).status == 404
        reply = await (await workers.ask(number, model="m", max_tokens=50)).reply()
        assert reply.status == 200
    heir = workers.follower
    await workers.metrics()  # what the leader has counted is known to the other
    workers.kill(workers.leader)
    await until(lambda: workers.leader == heir)
    await workers.all_there()
    watching = await workers.connect(heir)
    await watching.get("/events")
    assert (await watching.head()).status == 200
    shown = b""
    wanted = re.compile(rb'event: snapshot\ndata: ([^\n]*"sample_number":[1-9][^\n]*)\n')
    async with asyncio.timeout(LIMIT_S):
        while (found := wanted.search(shown)) is None:
            shown += await watching.chunk() or b""
    told = json.loads(found[1])
    assert told["problems"] == []
    assert told["queue"]["tokens_per_second"] is None
    assert told["queue"]["served_per_minute"] == 0


async def test_a_job_of_a_killed_leader_is_tried_again_by_the_next_one(
    shell: Shell, tmp_path: Path
) -> None:
    words = ("--set", "jobs.on_interrupt=retry")
    node = await shell.sim_node(ONE_SLOT)
    workers = await Workers.serve(shell, "--node", node, *words, cwd=tmp_path)
    dead, heir = workers.leader, workers.follower
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 150}
    job = (await workers.post(heir, "/jobs", {"type": "chat", "params": body})).json["id"]
    await until_job(workers, heir, job, "running")
    workers.kill(dead)
    await until(lambda: workers.leader == heir)
    await until_job(workers, heir, job, "completed")
    await workers.all_there()
    assert (await workers.get(dead, f"/jobs/{job}")).json["attempt"] == 2


async def until_job(workers: Workers, number: int, job: int, status: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (await workers.get(number, f"/jobs/{job}")).json["status"] != status:
            await pause()


@pytest.mark.parametrize("victim", ["leader", "follower"])
async def test_kills_under_load_cost_only_what_the_dead_worker_had(
    shell: Shell, victim: str
) -> None:
    slots = SimOptions(models=("m",), slots=3, ttft_s=0.0, tokens_per_second=200.0)
    workers = await Workers.serve(shell, "--node", await shell.sim_node(slots))
    dead = workers.leader if victim == "leader" else workers.follower
    survivor = 1 - dead
    clients = [await workers.ask(survivor, model="m", max_tokens=10) for _ in range(20)]
    lost = [await workers.ask(dead, model="m", max_tokens=10) for _ in range(5)]
    workers.kill(dead)
    assert {(await client.reply()).status for client in clients} == {200}
    for client in lost:
        client.abort()
    await workers.all_there()
    for number in (0, 1):
        assert (await (await workers.ask(number, model="m", max_tokens=2)).reply()).status == 200
    seen = (await workers.get(0, "/v1/queue")).json
    assert (seen["waiting"], seen["processing"]) == (0, 0)


async def test_a_worker_that_dies_again_and_again_is_started_ever_more_slowly(
    shell: Shell,
) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    number = workers.follower
    for pause_s in ("0", "0.1", "0.2"):
        pid = workers.pid(number)
        workers.kill(number)
        line = await workers.gateway.says(
            f"worker {number} ended (SIGKILL): starting it again in {pause_s} s"
        )
        assert json.loads(line)["pid"] == pid
        await until(lambda pid=pid: workers.pid(number) != pid)
    await workers.all_there()


# -- signals, and the start


async def test_a_signal_to_the_parent_drains_all_workers(shell: Shell) -> None:
    patient = ("--set", "server.shutdown_seconds=3600")
    async with FakeNode(slots=2) as node:
        workers = await Workers.serve(shell, "--node", node.url, *patient)
        running = [await workers.ask(number, model="m", stream=True) for number in (0, 1)]
        calls = [await node.next_call(LIMIT_S) for _ in running]
        for call in calls:
            await call.start_stream()
            await call.chunk(b"data: {}\n\n")
        for client in running:
            assert (await client.head()).status == 200
        waiting = [await workers.ask(number, model="m") for number in (0, 1)]
        await workers.until_waiting(2)
        workers.gateway.signal(signal.SIGTERM)
        for client in waiting:
            refused = await client.reply()
            assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
        for call in calls:
            await call.chunk(b"data: [DONE]\n\n")
            await call.end()
        for client in running:
            rest = b""
            while (piece := await client.chunk()) is not None:
                rest += piece
            assert rest.endswith(b"data: [DONE]\n\n")
        assert await workers.gateway.ends() == 0


async def test_a_second_signal_stops_all_workers_at_once(shell: Shell) -> None:
    patient = ("--set", "server.shutdown_seconds=3600")
    workers = await Workers.serve(shell, "--node", await shell.sim_node(ONE_SLOT), *patient)
    running = await stream_of(workers, 1)
    workers.gateway.signal(signal.SIGINT)
    await workers.gateway.says('"stopping"')
    workers.gateway.signal(signal.SIGINT)
    rest = b""
    while (piece := await running.chunk()) is not None:
        rest += piece
    assert b"shutting_down" in rest
    assert await workers.gateway.ends() == 0


@pytest.mark.parametrize("how", ["signal", "route"])
async def test_a_reload_reaches_all_workers(shell: Shell, tmp_path: Path, how: str) -> None:
    config = tmp_path / "forebay.toml"
    nodes = [await shell.sim_node(FAST)]
    nodes.append(await shell.sim_node(SimOptions(models=("other",), slots=1, ttft_s=0.0)))
    blocks = [f'[[nodes]]\nname = "n{n}"\nurl = "{url}"\n' for n, url in enumerate(nodes)]
    config.write_text(blocks[0])
    workers = await Workers.serve(shell, "--config", str(config))
    config.write_text("".join(blocks) + '[models.aliases]\nalias = "other"\n')
    if how == "signal":
        workers.gateway.signal(signal.SIGHUP)
    else:
        assert (await workers.post(workers.follower, "/admin/reload", {})).status == 200
    for number in (0, 1):
        async with asyncio.timeout(LIMIT_S):
            while (await (await workers.ask(number, model="alias")).reply()).status != 200:
                await pause()


async def test_workers_end_and_clear_up_when_their_parent_is_killed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        await _killed_parent(shell)
        assert await asyncio.to_thread(os.listdir, folder) == []


async def test_a_long_name_for_temporary_files_is_no_obstacle(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    assert (await (await workers.ask(workers.follower, model="m")).reply()).status == 200


async def _killed_parent(shell: Shell) -> None:
    workers = await Workers.serve(shell, "--node", await shell.sim_node(FAST))
    pids = [workers.pid(number) for number in (0, 1)]
    workers.gateway.signal(signal.SIGKILL)

    def are_gone() -> bool:
        return not any(_is_alive(pid) for pid in pids)

    await until(are_gone)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_port_that_is_taken_is_said_once(shell: Shell) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        words = ("--port", port, "--set", "server.workers=2", "--node", "http://127.0.0.1:1")
        gateway = await shell.start("serve", *words)
        assert await gateway.ends() == 1
        assert gateway.text.count("another program does") == 1


async def test_what_keeps_the_first_worker_from_starting_ends_the_command(
    shell: Shell, tmp_path: Path
) -> None:
    words = ("--set", "server.workers=2", "--set", 'jobs.modules=["no_such_module"]')
    gateway = await shell.start("serve", "--port", "0", *words, cwd=tmp_path)
    assert await gateway.ends() == 2
    assert gateway.text.count("forebay: ") == 1
    assert "no_such_module" in gateway.text
