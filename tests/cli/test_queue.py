"""`forebay queue`: the requests of a gateway, one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.api.queue import BetterNode
from forebay.cli.queue import place_text
from forebay.sdk import Place
from forebay.settings import digest_of

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from .conftest import Desk


class Line:
    """A slot that is taken, and someone who waits for it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ask(self, name: str, user: str) -> RawClient:
        return await self._desk.ask(name, {"model": "m", "messages": [], "user": user})


@pytest.fixture
async def line(desk: Desk) -> Line:
    node = await desk.node()
    await desk.start(node)
    made = Line(desk)
    await made.ask("runs", "alice")
    await made.ask("waits", "bob")
    return made


@pytest.mark.parametrize("verb", [("queue", "list"), ("ps",)])
async def test_what_runs_and_what_waits_is_a_line_each(
    desk: Desk, line: Line, verb: tuple[str, ...]
) -> None:
    done = await desk.run(*verb)
    assert done.exit_code == 0, done.output
    head, running, waiting = done.stdout.rstrip().splitlines()
    assert head.split()[:3] == ["Request", "State", "User"]
    assert running.split()[:5] == ["runs", "running", "alice", "m", "normal"]
    assert running.split()[-1] == "n1"
    assert waiting.split()[:6] == ["waits", "waiting", "bob", "m", "normal", "1"]
    assert waiting.split()[-1] == "busy"


async def test_the_list_is_filtered_and_printed_as_json(desk: Desk, line: Line) -> None:
    done = await desk.run("queue", "list", "--user", "bob", "--json")
    [row] = json.loads(done.stdout)
    assert (row["id"], row["position"], row["reason_code"]) == ("waits", 1, "busy")
    done = await desk.run("ps", "--state", "running", "--model", "m", "--json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["runs"]
    done = await desk.run("queue", "list", "--user", "nobody")
    assert "There are no such requests" in done.stdout
    assert json.loads((await desk.run("ps", "--user", "nobody", "--json")).stdout) == []


async def test_an_idle_gateway_says_so_and_where_the_ended_ones_are(desk: Desk) -> None:
    await desk.start()
    done = await desk.run("ps")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "No request is waiting or running" in done.stdout
    assert "queue list --state ended" in done.stdout


async def test_what_was_answered_is_completed_as_on_the_page(desk: Desk) -> None:
    node = await desk.node()
    await desk.start(node)
    client = await desk.ask("done", {"model": "m", "messages": [], "user": "alice"})
    await (await node.next_call()).answer({"choices": []})
    assert (await client.reply()).status == 200
    for outcome in ("completed", "served"):  # the API's word, too
        done = await desk.run("queue", "list", "--outcome", outcome)
        assert done.stdout.rstrip().endswith("completed, 200 on n1"), done.output


async def test_more_than_a_page_is_told_with_how_to_go_on(desk: Desk, line: Line) -> None:
    await line.ask("later", "bob")
    done = await desk.run("queue", "list", "--state", "waiting", "--limit", "1")
    assert "later" in done.stdout
    assert "queue list --state waiting --before later" in done.stderr
    done = await desk.run("queue", "list", "--state", "waiting", "--before", "later")
    assert "waits" in done.stdout
    assert "later" not in done.stdout
    assert done.stderr == ""


async def test_ended_requests_are_listed_by_how_they_ended(desk: Desk, line: Line) -> None:
    await line.ask("later", "bob")
    await desk.run("queue", "cancel", "waits", "later")
    done = await desk.run("queue", "list", "--outcome", "cancelled")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    head, *rows = done.stdout.rstrip().splitlines()
    assert head.split()[0] == "Request"
    assert [row.split()[:3] for row in rows] == [
        ["later", "ended", "bob"],
        ["waits", "ended", "bob"],
    ]
    assert [row.split()[-2:] for row in rows] == [["cancelled,", "499"]] * 2
    done = await desk.run("ps", "--outcome", "cancelled", "--state", "ended", "--json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["later", "waits"]
    done = await desk.run("queue", "list", "--outcome", "served")
    assert "There are no such requests" in done.stdout
    done = await desk.run("queue", "list", "--outcome", "cancelled", "--limit", "1")
    assert "queue list --state ended --outcome cancelled --before later" in done.stderr
    done = await desk.run("queue", "list", "--outcome", "cancelled", "--state", "running")
    assert done.exit_code == 2
    assert "--outcome selects ended requests" in done.stderr


async def test_one_request_is_shown_cancelled_and_still_shown(desk: Desk, line: Line) -> None:
    client = await line.ask("late", "bob")
    done = await desk.run("queue", "show", "late")
    assert "Request late is waiting" in done.stdout
    assert "every slot that could serve it is taken" in done.stdout
    assert "forebay queue cancel late" in done.stdout
    done = await desk.run("queue", "cancel", "late", "nobody")
    assert done.exit_code == 1
    assert "Request late is cancelled." in done.stdout
    assert "request nobody: the gateway says: no request with that id" in done.stderr
    assert (await client.reply()).status == 499
    done = await desk.run("queue", "show", "late")
    assert done.exit_code == 0
    assert "cancelled, 499" in done.stdout
    shown = json.loads((await desk.run("queue", "show", "late", "--json")).stdout)
    assert (shown["state"], shown["outcome"]) == ("ended", "cancelled")
    assert (await desk.run("queue", "show", "nobody")).exit_code == 1


async def test_a_key_sees_its_own_and_without_one_nothing_is_shown(desk: Desk) -> None:
    await desk.start(keys=[{"name": "team", "key_sha256": digest_of("team-secret")}])
    done = await desk.run("ps", "--key-env", "TEAM", TEAM="team-secret")
    assert "No request is waiting" in done.stdout
    done = await desk.run("ps")
    assert done.exit_code == 4
    assert "Name a key with --key-env" in done.stderr


async def test_a_word_that_is_no_state_is_refused_before_a_gateway_is_asked(desk: Desk) -> None:
    for words in (("--state", "lost"), ("--before", "a")):
        done = await desk.run("queue", "list", *words, url="http://127.0.0.1:9")
        assert done.exit_code == 2, words


def test_one_that_waits_for_a_better_node_is_told_what_it_gains() -> None:
    better = BetterNode("gpu2", "speed", seconds_gained=3.2, seconds_left=5.0)
    text = place_text(Place("w", "waiting", 1, reason="waits for gpu2", better_node=better)).plain
    assert "Gain       ends 3.2 s sooner there; waits for it 5.0 s more at most" in text
    assert "Gain" not in place_text(Place("w", "waiting", 1)).plain
