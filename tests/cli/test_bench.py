"""`forebay bench` against a real gateway, against other servers, and against nothing."""

from __future__ import annotations

import asyncio
import io
import json
from itertools import count
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.bench.run import BenchProgressBar
from forebay.cli.main import app
from forebay.cli.output.tables import SafeConsole
from forebay.load.plan import LoadPlan
from forebay.load.run import RunProgress
from forebay.load.statistics import fairness
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.testing import FakeClock, FakeNode, RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from typer.testing import Result

    from forebay.gateway.gateway import Gateway
    from forebay.testing import Call

    from .conftest import Desk

OK = {
    "choices": [{"message": {"content": "x"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
QUICK = ("--arrivals", "constant", "--rate", "200")
DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"


@pytest.fixture
async def sim() -> AsyncIterator[SimNode]:
    node = SimNode(SimOptions(slots=2, ttft_s=0.0, tokens_per_second=0.0))
    await node.start()
    yield node
    await node.stop()


async def run_bare(*words: str) -> Result:
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["bench", *words]))


async def rejected(gateway: Gateway, count: int) -> None:
    """Ask until the gateway has turned that many away."""
    async with asyncio.timeout(30), await RawClient.connect("127.0.0.1", gateway.port) as client:
        while True:
            await client.get("/v1/queue")
            if (await client.reply()).json["rejected_total"] >= count:
                return


# -- the way through


async def test_a_gateway_is_loaded_and_only_json_is_on_standard_output(
    desk: Desk, sim: SimNode
) -> None:
    await desk.start(sim)
    mixes = ("--users", "alice:1,bob:3", "--priorities", "high:1,normal:2")
    done = await desk.run("bench", *QUICK, "--limit", "40", *mixes, "--json")
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)
    assert (run["kind"], run["version"]) == ("forebay.bench", 1)
    assert run["settings"]["model"] == "sim-model"
    summary = run["summary"]
    assert (summary["all"]["offered"], summary["all"]["ok"]) == (40, 40)
    assert summary["all"]["wait"]["count"] == summary["all"]["ttft"]["count"] == 40
    assert summary["by_node"] == {"n1": 40}
    assert set(summary["by_user"]) == {"alice", "bob"}
    assert set(summary["by_priority"]) == {"high", "normal"}
    assert summary["all"]["tokens_in"] > 0
    assert len(run["samples"]["rows"]) == 40
    assert len(run["samples"]["rows"][0]) == len(run["samples"]["columns"])
    assert "Loading http://" in done.stderr


async def test_tables_a_report_and_a_file_come_of_it(
    desk: Desk, sim: SimNode, tmp_path: Path
) -> None:
    await desk.start(sim)
    html, save = tmp_path / "r.html", tmp_path / "r.json"
    done = await desk.run(
        "bench", *QUICK, "--limit", "20", "--users", "2", "--html", str(html), "--save", str(save)
    )
    assert done.exit_code == 0, done.output
    for text in ("Time to first token", "Queue wait", "Fairness", "20 of 20 (100 %)", "user-2"):
        assert text in done.stdout
    assert f"Report: {html}" in done.stdout
    assert html.read_text().startswith("<!doctype html>")
    assert json.loads(save.read_text())["summary"]["all"]["ok"] == 20


async def test_a_greedy_user_and_a_full_queue_are_counted_by_code_and_user(desk: Desk) -> None:
    node = await desk.node()
    gateway = await desk.start(node, queue={"max_size": 3})
    total, all_in = 24, asyncio.Event()

    async def answer(call: Call) -> None:
        await all_in.wait()
        await call.answer(OK)

    node.automatic = answer
    mixes = ("--users", "greedy:3,modest:1", "--no-stream")
    running = asyncio.create_task(
        desk.run("bench", *QUICK, "--limit", str(total), *mixes, "--json")
    )
    await rejected(gateway, total - 4)
    all_in.set()
    done = await running
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)
    summary = run["summary"]
    assert summary["all"]["by_code"] == {"queue_full": total - 4}
    assert (summary["all"]["ok"], summary["queued"]) == (4, 3)
    assert run["messages"]["queue_full"].startswith("queue is full")
    users = summary["by_user"]
    assert sum(user["by_code"].get("queue_full", 0) for user in users.values()) == total - 4
    offered = {name: user["offered"] for name, user in users.items()}
    served = {name: user["ok"] for name, user in users.items()}
    assert offered["greedy"] > offered["modest"]
    assert summary["fairness"] == fairness(offered, served)


async def test_a_stream_that_fails_half_way_is_an_error(desk: Desk) -> None:
    node = await desk.node()
    await desk.start(node)

    async def die(call: Call) -> None:
        await call.start_stream()
        await call.chunk(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
        call.reset()

    node.automatic = die
    done = await desk.run("bench", *QUICK, "--limit", "1")
    assert done.exit_code == 1
    assert "no request succeeded (1 node_failed)" in done.stderr
    assert "node_failed" in done.stdout


async def test_a_server_that_is_no_gateway_has_no_queue_wait() -> None:
    async with FakeNode() as node:
        node.automatic = lambda call: call.answer(OK)
        url = f"{node.url}/v1"  # as OpenAI's clients have it
        done = await run_bare(*QUICK, "--limit", "5", "--no-stream", "--json", url)
        assert done.exit_code == 0, done.output
        whole = json.loads(done.stdout)["summary"]["all"]
        assert (whole["ok"], whole["wait"], whole["ttft"]) == (5, None, None)
        shown = await run_bare(url, *QUICK, "--limit", "5", "--no-stream")
        line = next(line for line in shown.stdout.splitlines() if "Queue wait" in line)
        assert set(line.split()[2:]) == {"-"}


async def test_a_server_that_vanishes_in_the_middle_is_reported_with_what_was_measured() -> None:
    async with FakeNode() as node:
        numbers = count(1)

        async def answer(call: Call) -> None:
            number = next(numbers)
            if number <= 5:  # on a busy machine more are there before that is answered
                await call.answer(OK)
            if number == 5:
                await node.stop_listening()
                node.drop_connections()

        node.automatic = answer
        done = await run_bare(*QUICK, "--limit", "20", "--no-stream", "--json", node.url)
    assert done.exit_code == 0, done.output
    whole = json.loads(done.stdout)["summary"]["all"]
    assert 1 <= whole["ok"] <= 5
    assert whole["ok"] + whole["errors"] == 20
    assert set(whole["by_code"]) <= {"connect_failed", "connection_lost"}


async def test_a_run_sends_new_prompts_unless_its_salt_is_named() -> None:
    sent = []
    async with FakeNode() as node:
        node.automatic = lambda call: call.answer(OK)
        for words in ((), (), ("--salt", "s"), ("--salt", "s")):
            before = len(node.calls)
            done = await run_bare(node.url, *QUICK, "--limit", "3", "--no-stream", "--json", *words)
            salt = json.loads(done.stdout)["settings"]["salt"]
            sent.append((salt, sorted(call.body for call in node.calls[before:])))
        assert sent[2] == sent[3]
        assert sent[2][0] == "s"
        assert len({salt for salt, _ in sent}) == 3
        assert not set(sent[0][1]) & set(sent[1][1])
        again = await run_bare(
            node.url, *QUICK, "--limit", "3", "--no-stream", "--json", "--salt", sent[0][0]
        )
        assert again.exit_code == 0
        assert sorted(call.body for call in node.calls[-3:]) == sent[0][1]


# -- what may be wrong


async def test_nobody_at_the_address_is_told_and_exits_with_3() -> None:
    async with FakeNode() as node:
        await node.stop_listening()
        done = await run_bare(node.url)
    assert done.exit_code == 3
    assert "nothing answers at" in done.stderr
    assert "forebay serve" in done.stderr


async def test_a_missing_or_wrong_key_is_told_with_what_to_do(desk: Desk, sim: SimNode) -> None:
    await desk.start(sim, keys=[{"name": "team", "key_sha256": DIGEST}])
    none = await desk.run("bench", *QUICK, "--limit", "3")
    assert none.exit_code == 4
    assert "says 401" in none.stderr
    assert "Name a key with --key-env VAR" in none.stderr
    wrong = await desk.run("bench", *QUICK, "--limit", "3", "--key-env", "K", K="wrong")
    assert "Name another key with --key-env VAR" in wrong.stderr
    right = await desk.run("bench", *QUICK, "--limit", "3", "--key-env", "K", K="secret")
    assert right.exit_code == 0, right.output


async def test_a_limit_that_is_broken_exits_with_5_and_says_which(desk: Desk, sim: SimNode) -> None:
    await desk.start(sim)
    good = await desk.run("bench", *QUICK, "--limit", "5", "--fail-if", "errors>0")
    assert good.exit_code == 0, good.output
    bad = await desk.run("bench", *QUICK, "--limit", "5", "--fail-if", "ok<9", "--fail-if", "ok>8")
    assert bad.exit_code == 5
    assert "--fail-if ok<9: it is 5." in bad.stderr
    assert "ok>8" not in bad.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--duration", "soon"), "--duration: 'soon' is not a duration"),
        (("--rate", "0"), "--rate must be above 0"),
        (("--rate", "nan"), "--rate must be above 0"),
        (("--rate", "90000", "--duration", "1h"), "more than 200,000 requests"),
        (("--arrivals", "bursts"), "--arrivals: poisson, constant or trace"),
        (("--arrivals", "trace"), "--trace FILE.csv"),
        (("--arrivals", "poisson", "--trace", "x"), "--trace brings its own"),
        (("--trace", "no-such-file"), "--trace: no-such-file cannot be read"),
        (("--users", "a:b"), "--users: the weight"),
        (("--priorities", "a,a"), "--priorities: a is listed twice"),
        (("--fail-if", "speed>3"), "--fail-if: nothing is called speed"),
        (("--max-tokens", "0"), "--max-tokens must be between"),
        (("--timeout", "0s"), "--timeout must be above 0"),
        (("--slo-ttft", "1s", "--no-stream"), "--slo-ttft needs --stream"),
        (("--html", "no-such-folder/r.html"), "cannot be written"),
        (("--salt", "x" * 65), "--salt: at most 64"),
        (("--max-in-flight", "0"), "--max-in-flight must be between"),
        (("--url", "gopher://x"), "is not the address"),
    ],
)
def test_what_is_asked_wrongly_is_named_before_anything_is_sent(
    words: tuple[str, ...], told: str
) -> None:
    done = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:1", *words])
    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://me:s3cret@127.0.0.1:1", "has a user or a password in it"),
        ("https://s3cret@127.0.0.1:1/v1", "has a user or a password in it"),
        ("gopher://me:s3cret@127.0.0.1", "has a user or a password in it"),
        ("http://me:s3cret?x@127.0.0.1:1", "has a user or a password in it"),
        ("http://127.0.0.1:1/v1?key=s3cret", "has a query"),
        ("http://127.0.0.1:1/#s3cret", "has a query"),
    ],
)
def test_a_secret_in_the_address_is_refused_and_not_shown(address: str, told: str) -> None:
    done = CliRunner().invoke(app, ["bench", "--url", address])
    assert done.exit_code == 2
    assert told in done.stderr
    assert "s3cret" not in done.output


def test_more_than_one_address_is_refused() -> None:
    assert CliRunner().invoke(app, ["bench", "compere", "a", "b"]).exit_code == 2


async def test_a_server_without_a_list_of_models_needs_a_name() -> None:
    async with FakeNode(models=()) as node:
        done = await run_bare(node.url, *QUICK, "--limit", "1")
        assert done.exit_code == 2
        assert "Name one with --model" in done.stderr


# -- progress


def test_a_line_is_said_every_few_seconds_where_nobody_looks() -> None:
    said, clock = io.StringIO(), FakeClock()
    plan = LoadPlan(url="http://x", model="m", warmup_s=3.0)
    console = SafeConsole(file=said, width=200)
    with BenchProgressBar(clock, plan, 10, console) as view:
        for second in range(12):
            now = float(second)
            view.update(
                RunProgress(10, 9.0, now_s=now, ok=second, in_flight=1, not_sent=2, late_s=0.5)
            )
            clock.advance(1.0)
    lines = said.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("Sending: 5.0 s of 9.0 s, 5 answered, 1 under way, 2 NOT SENT")
    assert lines[1].endswith("0.5 s BEHIND")
    assert lines[2].startswith("Waiting for the last answers")


def test_a_bar_is_shown_on_a_terminal_and_gone_afterwards() -> None:
    said = io.StringIO()
    console = SafeConsole(file=said, width=120, force_terminal=True, markup=False, highlight=False)
    with BenchProgressBar(
        FakeClock(), LoadPlan(url="http://x", model="m\x1b[2J"), 10, console
    ) as view:
        view.update(RunProgress(10, 9.0, now_s=1.0, ok=3, failed=1, in_flight=1))
    assert "3 answered, 1 failed" in said.getvalue()
    assert "m?[2J" in said.getvalue()
