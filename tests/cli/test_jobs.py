"""`forebay jobs`: give a running gateway work, look at it, end it, try it again, follow it."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings import digest_of
from forebay.testing import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing import FakeNode

    from .conftest import Desk

CHAT = ("jobs", "submit", "chat", "--model", "m", "--prompt", "Why?")
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Because.\nSo."}}]}
REFUSAL = {"error": {"message": "too long"}}


@pytest.fixture
async def node(desk: Desk, tmp_path: Path) -> FakeNode:
    """The only node of a gateway with a database of its own; it runs one job at a time."""
    node = await desk.node(slots=1)
    await desk.start(node, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    return node


async def submitted(desk: Desk, *words: str) -> int:
    done = await desk.run(*CHAT, "--json", *words)
    assert done.exit_code == 0, done.output
    number = json.loads(done.stdout)["id"]
    assert isinstance(number, int)
    return number


async def shown(desk: Desk, number: int) -> dict[str, Any]:
    job = json.loads((await desk.run("jobs", "show", str(number), "--json")).stdout)
    assert isinstance(job, dict)
    return job


async def ended(desk: Desk, number: int) -> None:
    await desk.run("jobs", "watch", str(number))


# -- submitting


async def test_a_prompt_is_submitted_and_it_is_said_how_to_follow_it(
    desk: Desk, node: FakeNode
) -> None:
    done = await desk.run(*CHAT, "--job-id", "7", "--priority", "high", "--key", "k")
    assert done.exit_code == 0, done.output
    assert "Follow it with: forebay jobs watch 1" in done.stdout
    call = await node.next_call()
    assert call.json == {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
    job = await shown(desk, 1)
    assert (job["job_id"], job["priority"], job["idempotency_key"]) == (7, "high", "k")
    again = await desk.run(*CHAT, "--key", "k")
    assert "This work is already job 1, which is running" in again.stdout
    await call.answer(ANSWER)


async def test_waiting_for_a_job_prints_what_the_model_said(desk: Desk, node: FakeNode) -> None:
    waiting = asyncio.create_task(desk.run(*CHAT, "--wait"))
    await (await node.next_call()).answer(ANSWER)
    done = await waiting
    assert (done.exit_code, done.stdout) == (0, "Because.\nSo.\n")
    assert "Job 1: completed" in done.stderr


async def test_waiting_for_a_job_that_fails_exits_with_1_and_says_why(
    desk: Desk, node: FakeNode
) -> None:
    waiting = asyncio.create_task(desk.run(*CHAT, "--wait", "--json"))
    await (await node.next_call()).answer(REFUSAL, 400)
    done = await waiting
    assert done.exit_code == 1
    assert "the node answered 400: too long (node_refused)" in done.stderr
    assert "forebay jobs retry 1" in done.stderr
    assert json.loads(done.stdout)["result"] == REFUSAL


async def test_params_come_from_the_line_a_file_or_standard_input(
    desk: Desk, node: FakeNode, tmp_path: Path
) -> None:
    file = tmp_path / "params.json"
    file.write_text('{"model": "m", "input": "b"}')
    submit = ("jobs", "submit", "embedding")
    await desk.run(*submit, "--params", '{"model": "m", "input": "a"}')
    await desk.run(*submit, "--params-file", str(file))
    words = [*submit, "-", "--url", f"http://127.0.0.1:{desk.gateway.port}"]
    typed = '{"model": "m", "input": "c"}'
    await asyncio.to_thread(lambda: CliRunner().invoke(app, words, input=typed))
    await desk.run(*submit, "--model", "m", "--prompt", "d")
    inputs = []
    for _ in range(4):
        call = await node.next_call()
        inputs.append(call.json["input"])
        await call.answer({})
    assert inputs == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--params", "{"), "--params is not JSON"),
        (("--params", "{}", "--prompt", "x"), "not several"),
        (("--params-file", "no-such-file"), "cannot be read"),
        (("extra",), "'extra' is unexpected"),
    ],
)
async def test_what_is_asked_wrongly_is_not_sent(
    desk: Desk, node: FakeNode, words: tuple[str, ...], part: str
) -> None:
    done = await desk.run("jobs", "submit", "chat", *words)
    assert done.exit_code == 2
    assert part in done.stderr


async def test_a_refusal_is_told_in_the_gateways_own_words(desk: Desk, node: FakeNode) -> None:
    for words, part in (
        (("submit", "caht", "--prompt", "x"), "did you mean 'chat'?"),
        (("show", "99"), "there is no job 99"),
        (("watch", "99"), "there is no job 99"),
    ):
        done = await desk.run("jobs", *words)
        assert done.exit_code == 1, words
        assert "the gateway says" in done.stderr
        assert part in done.stderr


# -- looking


async def test_jobs_are_listed_the_newest_first_and_by_what_is_asked(
    desk: Desk, node: FakeNode
) -> None:
    assert "forebay jobs submit chat" in (await desk.run("jobs", "list")).stdout
    first, second = await submitted(desk, "--job-id", "1"), await submitted(desk, "--job-id", "2")
    call = await node.next_call()
    text = (await desk.run("jobs", "list")).stdout
    assert text.index("queued") < text.index("running")
    listed = json.loads((await desk.run("jobs", "list", "--json", "--limit", "1")).stdout)
    assert [job["id"] for job in listed] == [second]
    listed = json.loads((await desk.run("jobs", "list", "--json", "--status", "running")).stdout)
    assert [job["id"] for job in listed] == [first]
    none = await desk.run("jobs", "list", "--type", "embedding")
    assert "no such jobs" in none.stdout
    await call.answer(REFUSAL, 400)
    await (await node.next_call()).answer(ANSWER)
    await ended(desk, second)
    assert "too long" in (await desk.run("jobs", "list")).stdout


async def test_a_job_is_shown_with_its_result_and_without_control_codes(
    desk: Desk, node: FakeNode
) -> None:
    number = await submitted(desk)
    await (await node.next_call()).answer({"text": "naïve \x9b2J"})
    await ended(desk, number)
    text = (await desk.run("jobs", "show", str(number))).stdout
    assert f"Job {number} is completed" in text
    assert '"text": "naïve ?2J"' in text
    assert '"content": "Why?"' in text


# -- changing


async def test_jobs_are_cancelled_and_tried_again_each_by_itself(
    desk: Desk, node: FakeNode
) -> None:
    first, second = await submitted(desk, "--job-id", "1"), await submitted(desk, "--job-id", "2")
    call = await node.next_call()
    done = await desk.run("jobs", "cancel", str(second), "99", str(first))
    assert done.exit_code == 1
    assert "job 99: the gateway says: there is no job 99" in done.stderr
    assert f"Job {second} is cancelled" in done.stdout
    await call.gone()
    again = await desk.run("jobs", "retry", str(second), "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout) == [{"id": second, "status": "queued"}]
    await (await node.next_call()).answer(ANSWER)
    await ended(desk, second)
    refused = await desk.run("jobs", "retry", str(second), "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)[0]["error"]["code"] == "conflict"


# -- following


async def test_a_cancelled_job_ends_whoever_follows_it(desk: Desk, node: FakeNode) -> None:
    number = await submitted(desk)
    call = await node.next_call()
    watching = asyncio.create_task(desk.run("jobs", "watch", str(number)))
    async with await RawClient.connect("127.0.0.1", desk.gateway.port) as client:
        await client.request("DELETE", f"/jobs/{number}")
        assert (await client.reply()).status == 200
    done = await watching
    assert done.exit_code == 1
    assert "was cancelled" in done.stderr
    await call.gone()


async def test_a_job_is_followed_through_a_restart_of_the_gateway(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, jobs = await desk.node(), {"database": f"sqlite:///{tmp_path}/jobs.db"}
    gateway = await desk.start(node, jobs=jobs)
    number = await submitted(desk)
    call = await node.next_call()
    back, is_back = threading.Event(), False

    async def wait(*_: object) -> None:
        back.wait(60.0)
        if not is_back:
            raise KeyboardInterrupt  # so that a failure of this test is not a hang

    monkeypatch.setattr("forebay.sdk.transport.LoopPace.sleep", wait)
    port = gateway.port
    words = ("jobs", "watch", str(number))
    watching = asyncio.create_task(desk.run(*words, url=f"http://127.0.0.1:{port}"))
    try:
        await gateway.stop(0.0)
        await call.gone()
        await desk.start(node, jobs=jobs, server={"port": port})
        is_back = True
    finally:
        back.set()
    await (await node.next_call()).answer(ANSWER)
    done = await watching
    assert (done.exit_code, done.stdout) == (0, "Because.\nSo.\n")


async def test_ctrl_c_leaves_the_job_alone_and_says_how_to_go_on(
    desk: Desk, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await submitted(desk)
    call = await node.next_call()

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("forebay.cli.jobs.command._say_step", interrupted)
        done = await desk.run("jobs", "watch", str(number))
    assert done.exit_code == 130
    assert f"Job {number} continues" in done.stderr
    assert f"forebay jobs cancel {number}" in done.stderr
    assert (await shown(desk, number))["status"] == "running"
    await call.answer(ANSWER)


async def test_all_jobs_are_counted_by_type_and_status(desk: Desk, node: FakeNode) -> None:
    assert "no jobs yet" in (await desk.run("jobs", "watch")).stdout
    await submitted(desk)
    call = await node.next_call()
    text = (await desk.run("jobs", "watch")).stdout  # not a terminal: one look
    assert "Running" in text
    assert "The newest:" in text
    await call.answer(ANSWER)


async def test_all_jobs_as_json_are_a_line_for_every_look(
    desk: Desk, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await submitted(desk)
    call = await node.next_call()
    looks = iter((None, KeyboardInterrupt()))

    def wait(_: float) -> None:
        if (end := next(looks)) is not None:
            raise end

    monkeypatch.setattr("forebay.cli.jobs.watch.wait_s", wait)
    done = await desk.run("jobs", "watch", "--json")
    assert done.exit_code == 130
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["counts"] == second["counts"] == {"chat": {"running": 1}}
    assert [job["id"] for job in first["jobs"]] == [number]
    await call.answer(ANSWER)


async def test_on_a_terminal_the_table_is_drawn_again_and_outlives_the_gateway(
    desk: Desk, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await submitted(desk)
    await (await node.next_call()).answer(ANSWER)
    await ended(desk, number)
    drawn, loop, looks = io.StringIO(), asyncio.get_running_loop(), iter((True, False))

    def wait(_: float) -> None:
        if not next(looks):
            raise KeyboardInterrupt
        stopping = asyncio.run_coroutine_threadsafe(desk.gateway.stop(0.0), loop)
        stopping.result(60.0)

    terminal = Console(file=drawn, force_terminal=True, width=120, height=30)
    monkeypatch.setattr("forebay.cli.jobs.watch.console_for_output", lambda: terminal)
    monkeypatch.setattr("forebay.cli.jobs.watch.wait_s", wait)
    done = await desk.run("jobs", "watch")
    assert done.exit_code == 130
    first, second = drawn.getvalue().split("Ctrl-C stops watching")
    assert "completed" in first
    assert "no gateway answers" in second


async def test_a_key_sees_its_own_jobs_and_says_which_it_counted(
    desk: Desk, tmp_path: Path
) -> None:
    keys = [{"name": "team", "key_sha256": digest_of("team-secret")}]
    node = await desk.node()
    await desk.start(node, keys=keys, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    none = await desk.run("jobs", "list")
    assert none.exit_code == 4
    assert "Name a key with --key-env" in none.stderr
    team = ("--key-env", "TEAM")
    assert (await desk.run(*CHAT, *team, TEAM="team-secret")).exit_code == 0
    call = await node.next_call()
    done = await desk.run("jobs", "watch", *team, TEAM="team-secret")
    assert done.exit_code == 0, done.output
    assert "chat" in done.stdout
    await call.answer(ANSWER)
