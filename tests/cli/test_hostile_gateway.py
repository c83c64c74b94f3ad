"""Every command against a gateway that wants to steer the terminal, or that makes no sense."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from harness.preloaded import run_on_terminal

from .hostile_gateway import DEEP, EVIL, ODD, SNAPSHOT, HostileGateway, poisoned, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typer.testing import Result

COMMANDS = (
    "status",
    "status --json",
    "top --once",
    "top --json",
    "nodes list",
    "nodes list --json",
    "nodes add http://n",
    "nodes remove n",
    "nodes drain n",
    "nodes resume n",
    "nodes resume n --json",
    "queue list",
    "ps --json",
    "queue show r-1",
    "queue show r-1 --json",
    "queue cancel r-1",
    "jobs submit chat --prompt p",
    "jobs submit chat --prompt p --wait",
    "jobs list",
    "jobs list --json",
    "jobs show 1",
    "jobs show 1 --json",
    "jobs cancel 1 2",
    "jobs retry 1",
    "jobs watch",
    "jobs watch 1",
    "chat",
    "chat --session s-1",
    "batch FILE",
    "batch list",
    "batch list --json",
    "batch show batch_1",
    "batch cancel batch_1 batch_2",
    "sessions",
    "sessions list --json",
    "sessions show ses_1",
    "sessions delete ses_1 ses_2",
    "bench --duration 1s --rate 1 --limit 1 --retries 0 --timeout 2s",
)
SOME = ("status", "nodes list", "nodes drain n", "jobs list", "jobs show 1", "jobs cancel 1")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
EXITS = (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def gateway() -> Iterator[HostileGateway]:
    made = HostileGateway()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "in.jsonl"
    made.write_text(
        '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {}}\n'
    )
    return made


def run(gateway: HostileGateway, command: str, file: Path) -> Result:
    file.with_name(file.name + ".forebay").unlink(missing_ok=True)
    words = [str(file) if word == "FILE" else word for word in command.split()]
    done = CliRunner().invoke(app, [*words, "--url", gateway.url], input="hello\n")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code in EXITS
    for text in (done.stdout, done.stderr):
        assert not CONTROLS.search(text), (command, text)
        assert "Traceback (most" not in text
    return done


def evil(path: str) -> tuple[int, Any]:
    return 200, poisoned(SNAPSHOT if path.startswith("/events") else told(path))


def refusal(path: str) -> tuple[int, Any]:
    return 409, {"error": {"code": f"c{EVIL}", "message": f"m{EVIL}", "hint": f"h{EVIL}"}}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_or_message_of_a_gateway_reaches_the_terminal_as_it_is(
    gateway: HostileGateway, file: Path, command: str
) -> None:
    for gateway.answer in (evil, refusal):
        done = run(gateway, command, file)
        if "--json" not in command and not command.startswith(("jobs show", "chat", "jobs watch")):
            assert "\nforged" not in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_makes_no_sense_is_told_as_such(
    gateway: HostileGateway, file: Path, command: str
) -> None:
    """Each odd value in one of three places, and over all commands each in every place."""
    answers: list[Callable[[Any, str], tuple[int, Any]]] = [
        lambda odd, path: (200, odd),
        lambda odd, path: (409, {"error": odd}),
        lambda odd, path: (200, _all_are(odd, told(path))),
    ]
    for place, odd in enumerate((*ODD, DEEP, "not json"), COMMANDS.index(command)):
        gateway.answer = partial(answers[place % 3], odd)
        run(gateway, command, file)


def _all_are(odd: Any, value: Any) -> Any:
    """Return the value with another in the place of each that is no list or object."""
    if isinstance(value, dict):
        return {name: _all_are(odd, inner) for name, inner in value.items()}
    return [_all_are(odd, inner) for inner in value] if isinstance(value, list) else odd


@pytest.mark.parametrize("command", SOME)
def test_the_answer_is_called_senseless_and_the_field_is_named(
    gateway: HostileGateway, file: Path, command: str
) -> None:
    gateway.answer = lambda path: (200, _all_are(["x"], told(path)))
    done = run(gateway, command, file)
    if command == "jobs cancel 1":  # nothing of that answer is used
        assert done.exit_code == 0
        return
    assert done.exit_code == 3
    assert re.search(
        r"answer cannot be parsed: Expected .* at `\$\..*is this a Forebay gateway\?", done.stderr
    )


@pytest.mark.parametrize("command", SOME)
@pytest.mark.parametrize("answer", [evil, pytest.param(refusal, marks=pytest.mark.long)])
def test_at_a_terminal_there_are_no_controls_but_our_colours(
    gateway: HostileGateway, command: str, answer: Any
) -> None:
    gateway.answer = answer
    shown = COLOURS.sub("", at_a_terminal([*command.split(), "--url", gateway.url]))
    assert shown.strip()
    assert not CONTROLS.search(shown.replace("\r\n", "\n")), shown


def at_a_terminal(words: list[str]) -> str:
    """Return what a command writes to a terminal, its colours included."""
    environ = {"PATH": os.defpath, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    status, said = run_on_terminal(*words, env=environ)
    assert status in EXITS
    return said


def test_commands_write_only_through_what_cleans() -> None:
    import forebay.cli

    folder = Path(forebay.cli.__file__).parent
    free = ("console.py", "main.py", "verbs.py")
    wild = re.compile(r"typer\.echo\(|(?<![\w.])print\(|(?<!Safe)\bConsole\(")
    found = [
        path.name
        for path in sorted(folder.rglob("*.py"))
        if path.name not in free and wild.search(path.read_text())
    ]
    assert found == []
