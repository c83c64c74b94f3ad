"""Several gateways on one PostgreSQL: killed, frozen, and their database with them."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest

from forebay.testing import FakeNode
from harness.polling import pause
from harness.preloaded import COMMAND

from .conftest import LIMIT_S, Command, Shell, listening_port
from .ledger import Entry, Ledger, Wrong, check
from .storm import ATTEMPTS, NODES, SLOTS, Storm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from forebay.testing.fake_node import Call

UNFENCED = Path(__file__).parent / "unfenced.py"
FOR_EVER_S = "86400"
LINES = 60


def chat(content: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"type": "chat", "params": {"model": "m", "messages": messages}, **more}


@pytest.fixture
def ledger(postgres_url: str) -> Iterator[Ledger]:
    ledger = Ledger(postgres_url)
    yield ledger
    ledger.close()


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    async with FakeNode() as node:
        yield node


def options(postgres_url: str, node: FakeNode, lease_s: str) -> tuple[str, ...]:
    return (
        "--node", node.url,
        "--set", f"jobs.database={postgres_url}",
        "--set", f"jobs.lease_seconds={lease_s}",
        "--set", "jobs.on_interrupt=retry",
    )  # fmt: skip


async def ask(shell: Shell, port: int, method: str, path: str, body: object = None) -> Any:
    client = await shell.connect(port)
    await client.request(method, path, b"" if body is None else body)
    return await client.reply()


async def until(found: Callable[[], bool], what: str) -> None:
    """Ask the database until it is so."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not await asyncio.to_thread(found):
                await pause()
    except TimeoutError:
        raise AssertionError(what) from None


# -- a job runs on one gateway, and its caller speaks to another


@pytest.fixture
async def pair(
    shell: Shell, postgres_url: str, node: FakeNode, tmp_path: Path
) -> tuple[int, int, int]:
    """A job that runs on the first of two gateways; their ports, and its number."""
    words = options(postgres_url, node, FOR_EVER_S)  # nothing is found out by a heartbeat
    _, first = await shell.serve(*words, cwd=tmp_path)
    reply = await ask(shell, first, "POST", "/jobs", chat("hello"))
    _, second = await shell.serve(*words, cwd=tmp_path)
    return first, second, reply.json["id"]


async def test_a_job_cancelled_through_another_gateway_stops_on_its_node_at_once(
    shell: Shell, node: FakeNode, pair: tuple[int, int, int]
) -> None:
    first, second, job_id = pair
    call = await node.next_call()
    assert (await ask(shell, second, "DELETE", f"/jobs/{job_id}")).status == 200
    await call.gone()
    assert (await ask(shell, first, "GET", f"/jobs/{job_id}")).json["status"] == "cancelled"


async def test_a_job_is_followed_through_another_gateway(
    shell: Shell, node: FakeNode, pair: tuple[int, int, int]
) -> None:
    _, second, job_id = pair
    call = await node.next_call()
    client = await shell.connect(second)
    await client.get(f"/jobs/{job_id}/events")
    await client.head()
    assert b"event: running" in (await client.chunk() or b"")
    await call.answer({"said": "hi"})
    assert b"event: completed" in (await client.chunk() or b"")
    assert await client.chunk() is None


async def echo(call: Call) -> None:
    await call.answer({"echo": call.json["messages"][0]["content"]})


async def test_a_batch_made_through_one_gateway_is_read_through_another_and_each_end_told_once(
    shell: Shell, ledger: Ledger, postgres_url: str, node: FakeNode, tmp_path: Path
) -> None:
    """Each in a folder of its own: they share nothing but the database."""
    async with FakeNode() as hook:
        told: list[str] = []

        async def note(call: Call) -> None:
            told.append(call.json["id"])
            await call.answer({})

        node.automatic, hook.automatic = echo, note
        words = (*options(postgres_url, node, FOR_EVER_S), "--set", f"jobs.webhook_url={hook.url}")
        ports = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            ports.append((await shell.serve(*words, cwd=tmp_path / name))[1])
        here, there = (
            openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")
            for port in ports
        )
        file = await here.files.create(file=lines(20), purpose="batch")
        batch = await there.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        ids = [
            (await ask(shell, ports[n % 2], "POST", "/jobs", chat(f"job {n}"))).json["id"]
            for n in range(12)
        ]
        batch = await ended(here, batch.id)
        assert batch.status == "completed"
        for client in (here, there):
            output = await client.files.content(batch.output_file_id)
            read = [json.loads(one) for one in output.text.splitlines()]
            assert [one["custom_id"] for one in read] == [f"c{i}" for i in range(20)]
            await client.close()
        due = "SELECT webhook_due FROM jobs UNION SELECT webhook_due FROM batches"
        await until(lambda: ledger.ask(due) == [(None,)], "not all was told")
    # The number at the end counts claims: one that was given back, for want of a slot, is no end.
    ends = [event.rpartition("_")[0] for event in told]
    assert sorted(ends) == sorted([f"evt_{batch.id}", *(f"evt_job_{job_id}" for job_id in ids)])


def lines(count: int) -> bytes:
    body: dict[str, Any] = {"method": "POST", "url": "/v1/chat/completions"}
    return b"".join(
        json.dumps(
            {**body, "custom_id": f"c{i}", "body": {**chat(f"c{i}")["params"]}}
        ).encode() + b"\n"
        for i in range(count)
    )  # fmt: skip


async def ended(client: openai.AsyncOpenAI, batch_id: str) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await pause()


# -- frozen past its lease


async def frozen_and_thawed(
    shell: Shell,
    node: FakeNode,
    ledger: Ledger,
    words: tuple[str, ...],
    script: Path | str = COMMAND,
) -> tuple[Command, int]:
    """Have a gateway answer for a job after another has: return it, and the job's number."""
    late = await shell.start("serve", "--port", "0", *words, script=script)
    port = await listening_port(late)
    await asyncio.to_thread(ledger.begin)
    job_id = (await ask(shell, port, "POST", "/jobs", chat("hello"))).json["id"]
    first = await node.next_call()
    late.signal(signal.SIGSTOP)
    await shell.serve(*words)
    second = await node.next_call(LIMIT_S)
    await second.answer({"by": "the second"})
    await until(lambda: ledger.unended() == 0, "the job was not taken over")
    await first.answer({"by": "the first"})
    late.signal(signal.SIGCONT)
    return late, int(job_id)


async def test_fault_48_a_gateway_frozen_past_its_lease_has_its_result_refused(
    shell: Shell, node: FakeNode, ledger: Ledger, postgres_url: str, tmp_path: Path
) -> None:
    words = options(postgres_url, node, "1")
    late, job_id = await frozen_and_thawed(shell, node, ledger, words)
    live = await ask(shell, await listening_port(late), "GET", f"/jobs/{job_id}")
    assert live.json["result"] == {"by": "the second"}
    late.signal(signal.SIGTERM)  # whatever it has to say, it has said by then
    assert await late.ends() == 0
    last = check(ledger.entries(), {job_id}, attempts=3)[job_id]
    assert (last.now, last.attempt) == ("completed", 2)
    assert json.loads(last.result or "") == {"by": "the second"}


async def test_without_fences_the_check_finds_the_second_result(
    shell: Shell, node: FakeNode, ledger: Ledger, postgres_url: str, tmp_path: Path
) -> None:
    """The control: were the fences not there, we would know."""
    words = options(postgres_url, node, "1")
    _, job_id = await frozen_and_thawed(shell, node, ledger, words, UNFENCED)
    ends = "SELECT count(*) FROM book WHERE now = 'completed'"
    await until(lambda: ledger.ask(ends)[0][0] == 2, "the late result was never written")
    with pytest.raises(Wrong, match="was completed, and then completed"):
        check(ledger.entries(), {job_id}, attempts=3)


# -- everything at once


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One short storm, or as many long ones as are asked for."""
    if "storm_seed" in metafunc.fixturenames:
        count = metafunc.config.getoption("--storms")
        metafunc.parametrize("storm_seed", range(7, 7 + max(1, count)))


async def test_faults_47_49_50_no_job_is_lost_or_ends_twice_while_gateways_and_database_die(
    shell: Shell, ledger: Ledger, postgres_url: str, tmp_path: Path, storm_seed: int,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    chance = random.Random(storm_seed)
    storm = Storm(shell, ledger, tmp_path, chance)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FakeNode(slots=SLOTS)) for _ in range(NODES)]
        await storm.begin(postgres_url, nodes)
        stack.push_async_callback(storm.end)
        await asyncio.to_thread(ledger.begin)
        batch_id = await storm.make_batch(lines(LINES))
        poison = await storm.submit({"type": "fragile", "params": {"poison": True}}, "poison")
        long = 3 if request.config.getoption("--storms") else 1
        blows = ["kill", "kill", "freeze", "crash_database"] * long
        chance.shuffle(blows)
        async with asyncio.TaskGroup() as group:
            for name in ("ada", "bob", "eve"):
                group.create_task(storm.call(name))
            for kind in blows:
                await storm.blow(kind)
            storm.over = True
        await storm.settled()
        output = await storm.batch_output(batch_id)
    ends = check(await asyncio.to_thread(ledger.entries), set(storm.accepted), ATTEMPTS)
    assert (ends[poison].now, ends[poison].code) == ("failed", "dead_letter")
    check_ends(storm, ends, poison)
    assert sorted(one["custom_id"] for one in output) == sorted(f"c{i}" for i in range(LINES))
    for one in output:
        if one["response"] is None:  # each of its attempts was with a gateway that died
            assert one["error"]["code"] == "dead_letter", one
        else:
            assert one["response"]["body"]["token"] in storm.nodes.tokens[one["custom_id"]]
    asked_again = sum(count - 1 for count in storm.nodes.asked.values())
    logging.getLogger("tests").info(
        "%d jobs, %d asked again, %s", len(ends), asked_again, dict(storm.blows)
    )


def check_ends(storm: Storm, ends: dict[int, Entry], poison: int) -> None:
    """Say whether each job ended as it should: nothing but a death may have kept it from that."""
    for job_id, end in ends.items():
        content = storm.accepted.get(job_id)
        if job_id in storm.cancelled:
            assert end.now == "cancelled", end
        elif end.now == "completed" and content is not None and end.line is None:
            result = json.loads(end.result or "")
            assert result == "well" or result["token"] in storm.nodes.tokens[content], end
        elif job_id != poison:
            assert end.now in ("completed", "cancelled") or end.code == "dead_letter", end
    assert sum(end.now == "completed" for end in ends.values()) > len(ends) * 0.8
