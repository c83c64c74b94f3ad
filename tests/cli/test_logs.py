"""`forebay logs`: the access log for people, of a file and of a pipe."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from forebay.cli.main import app

COMMAND = str(Path(sys.executable).parent / "forebay")
LIMIT_S = 30.0
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RECORD = {
    "time": "2026-01-02T03:04:05.678+00:00", "route": "/v1/chat/completions", "outcome": "served",
    "model": "llama", "node": "gpu1", "status": 200, "run_ms": 1500, "from_the_future": 1,
}  # fmt: skip
SHORT = "/v1/chat/completions completed: llama on gpu1, took 1.5 s"


def test_a_file_is_shown_for_people_and_other_lines_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    line = json.dumps(RECORD)
    log.write_text(f"Forebay is listening\n{line}\nJan 2 host forebay[1]: {line}\n{{broken\n")
    done = CliRunner().invoke(app, ["logs", str(log)])
    assert done.exit_code == 0, done.output
    first, *shown, last = done.stdout.splitlines()
    assert (first, last) == ("Forebay is listening", "{broken")
    assert [text.partition(" ")[2] for text in shown] == [SHORT, SHORT]
    plain = CliRunner().invoke(app, ["logs", str(log), "--json"])
    assert [json.loads(text) for text in plain.stdout.splitlines()] == [RECORD, RECORD]


def test_standard_input_is_read_to_its_end() -> None:
    done = CliRunner().invoke(app, ["logs", "-"], input=json.dumps(RECORD) + "\n")
    assert SHORT in done.stdout


def test_a_file_that_is_not_there_is_said() -> None:
    done = CliRunner().invoke(app, ["logs", "no-such.log"])
    assert done.exit_code == 2
    assert "no-such.log cannot be read" in done.stderr


async def test_a_file_is_followed_also_when_it_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("one\n")
    command = await asyncio.create_subprocess_exec(
        COMMAND, "logs", "-f", str(log), stdout=subprocess.PIPE
    )
    assert command.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            assert await command.stdout.readline() == b"one\n"
            with log.open("a") as added:
                added.write(json.dumps(RECORD) + "\n")
            assert SHORT in (await command.stdout.readline()).decode()
            log.write_text("two\n")
            assert await command.stdout.readline() == b"two\n"
    finally:
        command.kill()
        await command.wait()
