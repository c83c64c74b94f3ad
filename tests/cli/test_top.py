"""`forebay top` without a terminal: one picture, JSON, and ways out that say what to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings import digest_of

if TYPE_CHECKING:
    from .conftest import Desk

HELP = """\
Usage: forebay top [OPTIONS]

  Watch a running gateway live: the queue, the nodes, models and jobs.

  Exits with 0 after q, 1 when the gateway said no, 3 when none can be reached,
  4 when it wants a key.

Options:
  --url URL      Address of the gateway; default: FOREBAY_URL, else the address
                 in the settings, else http://127.0.0.1:7800.
  --key-env VAR  Environment variable with the API key for the gateway; default:
                 FOREBAY_API_KEY.
  --once         Print one frame as text and exit; the default in a pipe.
  --json         Print JSON.
  --ascii        Use ASCII characters only; the default without UTF-8.
  -h, --help     Show this message and exit.

  Keys: q leaves, ? explains the others. d drains the chosen node and r resumes
  it, for admins. It reconnects when the gateway is restarted.
"""


def test_the_help_says_what_it_does() -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["top", "--help"])
    assert done.stdout == HELP


@pytest.mark.parametrize("words", [("--once",), ()])
async def test_a_pipe_gets_one_picture(desk: Desk, words: tuple[str, ...]) -> None:
    await desk.start(await desk.node(models=("mistral",), slots=3))
    done = await desk.run("top", *words, COLUMNS="80")
    assert done.exit_code == 0, done.output
    for part in ("Forebay", "0 of 100", "n1", "online", "0/3", "mistral", "Nothing is wrong."):
        assert part in done.stdout, done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout


async def test_the_picture_has_who_runs_and_who_waits_up_to_a_bound(desk: Desk) -> None:
    await desk.start(await desk.node())
    assert "nobody waits and nothing runs" in (await desk.run("top", "--once")).stdout
    for number in range(22):
        body = {"model": "m", "messages": [], "user": f"user{number:02}"}
        await desk.ask(f"r{number}", body)
    lines = (await desk.run("top", "--once", COLUMNS="100")).stdout.splitlines()
    head = next(at for at, line in enumerate(lines) if line.strip().startswith("Line 1-20/22"))
    shown = [line.split() for line in lines[head + 1 : head + 23]]
    assert shown[0][:4] == ["user00", "m", "●", "running"]
    assert shown[1][:5] == ["user01", "m", "◒", "waiting", "1"]
    assert (shown[19][0], shown[20]) == ("user19", [])


async def test_who_may_not_see_the_line_sees_the_rest(desk: Desk) -> None:
    keys = [{"name": "team", "key_sha256": digest_of("team-secret")}]
    await desk.start(await desk.node(), keys=keys, server={"public_status": True})
    done = await desk.run("top", "--once")
    assert done.exit_code == 0, done.output
    assert "n1" in done.stdout
    assert "the gateway says" in done.stdout


async def test_ascii_has_nothing_else(desk: Desk) -> None:
    await desk.start(await desk.node(models=("mistral-東京",)))
    done = await desk.run("top", "--once", "--ascii")
    assert done.stdout.isascii()
    assert "* online" in done.stdout


async def test_json_is_the_snapshot_as_it_came(desk: Desk) -> None:
    await desk.start(await desk.node(models=("mistral",)))
    done = await desk.run("top", "--json")
    seen = json.loads(done.stdout)
    assert seen["queue"]["waiting"] == 0
    assert seen["nodes"][0]["name"] == "n1"
    assert "waiting_jobs" in seen["queue"]  # what is not drawn is not lost


async def test_where_no_gateway_answers_it_says_how_to_start_one(desk: Desk) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        done = await desk.run("top", url=f"http://127.0.0.1:{held.getsockname()[1]}")
    assert done.exit_code == 3
    assert "forebay serve" in done.stderr


async def test_without_a_key_it_says_how_to_name_one(desk: Desk) -> None:
    keys = [{"name": "team", "key_sha256": digest_of("team-secret")}]
    await desk.start(await desk.node(), keys=keys)
    done = await desk.run("top", "--once")
    assert done.exit_code == 4
    assert "--key-env" in done.stderr
    done = await desk.run("top", "--once", "--key-env", "TEAM", TEAM="team-secret")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("forebay.cli.main", ("textual", "httpx", "forebay.terminal")),  # no other command pays
        ("forebay.terminal.panels", ("textual",)),  # nor one picture for a pipe
    ],
)
def test_only_the_live_view_pays_for_it(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
