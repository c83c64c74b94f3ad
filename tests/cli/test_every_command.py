"""What holds for every command there is, and for those that are still to come."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from forebay.cli import exits
from forebay.cli.main import MEANT, VERBS, app
from harness.preloaded import run_command, run_on_terminal

from .test_help import COMMANDS

COMMAND = str(Path(sys.executable).parent / "forebay")
PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
WITHOUT_JSON = {
    "serve": "it runs until it is stopped; its log is JSON",
    "node": "it runs until it is stopped; its log is JSON",
    "sim-node": "it runs until it is stopped",
    "chat": "it is a conversation; programs have the SDK",
    "demo": "it is a play for people",
    "config schema": "it prints JSON as it is",
    "completion bash": "it prints a script",
    "completion zsh": "it prints a script",
    "completion fish": "it prints a script",
}
VERBS_OF_ALL = [(" ".join(words), command) for words, command in COMMANDS if words]
LEAVES = [(name, command) for name, command in VERBS_OF_ALL if not hasattr(command, "commands")]


@pytest.mark.parametrize(("name", "command"), LEAVES, ids=[name for name, _ in LEAVES])
def test_a_command_prints_json_or_there_is_a_reason_why_not(name: str, command: Any) -> None:
    has_json = any("--json" in parameter.opts for parameter in command.params)
    assert has_json != (name in WITHOUT_JSON), name


@pytest.mark.parametrize("name", list(VERBS))
def test_the_list_of_verbs_says_of_each_what_it_says_itself(name: str) -> None:
    own = typer.main.get_command(app).commands[name].help  # type: ignore[attr-defined] # a group
    assert " ".join(own.split("\n\n")[0].split()) == VERBS[name].help


@pytest.mark.parametrize("name", [name for name, verb in VERBS_OF_ALL if not verb.hidden])
def test_a_misspelt_command_is_answered_with_the_nearest(name: str) -> None:
    *before, last = name.split()
    done = CliRunner().invoke(app, [*before, f"{last[0]}x{last[1:]}"])
    assert done.exit_code == exits.USAGE
    assert f"'{last}'" in done.stderr.partition("Did you mean")[2]


@pytest.mark.parametrize(("word", "verb"), list(MEANT.items()), ids=list(MEANT))
def test_a_word_that_means_a_command_is_answered_with_it(word: str, verb: str) -> None:
    assert word not in VERBS
    done = CliRunner().invoke(app, [word])
    assert done.exit_code == exits.USAGE
    assert f"no such command '{word}'. Did you mean '{verb}'?" in done.stderr
    meant = CliRunner().invoke(app, [*verb.split(), *([] if verb[0] == "-" else ["--help"])])
    assert meant.exit_code == 0


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("keys create", "new"), ("keys delete", "revoke"), ("nodes rm", "remove"),
        ("nodes stop", "drain"), ("queue kill", "cancel"), ("queue get", "show"),
        ("jobs create", "submit"), ("jobs rm", "cancel"), ("sessions close", "delete"),
        ("batch status", "show"), ("config validate", "check"), ("config print", "show"),
    ],
)  # fmt: skip
def test_a_word_that_means_a_verb_of_a_group_is_answered_with_it(words: str, verb: str) -> None:
    group, word = words.split()
    done = CliRunner().invoke(app, [group, word, "x"])
    assert done.exit_code == exits.USAGE
    assert f"no such command '{word}'. Did you mean '{verb}'?" in done.stderr


@pytest.mark.parametrize(("name", "command"), VERBS_OF_ALL, ids=[name for name, _ in VERBS_OF_ALL])
def test_a_misspelt_option_is_answered_with_the_nearest_on_one_line(
    name: str, command: Any
) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--hlep"])
    assert done.exit_code == exits.USAGE
    assert "no such option: --hlep. Did you mean --help" in done.stderr
    assert f"Help: forebay {name} --help" in done.stderr or "Usage" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_value_that_is_no_choice_is_answered_with_the_choices() -> None:
    done = CliRunner().invoke(app, ["usage", "--by", "team"])
    assert done.exit_code == exits.USAGE
    wrong = "invalid value for '--by': 'team' is not one of 'key', 'user', 'model'."
    assert wrong in " ".join(done.stderr.split())


def test_each_exit_status_is_documented_and_told_by_help() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert {int(status): words for status, words in rows.items()} == exits.MEANINGS
    told = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert exits.EPILOG in told
    assert set(map(int, re.findall(r"\b\d+\b", exits.EPILOG))) == set(exits.MEANINGS)


def test_help_can_be_asked_for_in_the_usual_ways() -> None:
    wanted = CliRunner().invoke(app, ["nodes", "drain", "--help"]).stdout
    for words in (["help", "nodes", "drain"], ["nodes", "drain", "-h"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stdout) == (0, wanted)
    assert CliRunner().invoke(app, ["help"]).stdout == CliRunner().invoke(app, ["--help"]).stdout


def test_without_a_command_the_help_is_shown_and_the_status_says_so() -> None:
    done = CliRunner().invoke(app, [])
    assert done.exit_code == exits.USAGE
    assert "Commands:" in done.stderr
    assert done.stdout == ""


def test_in_a_pipe_there_are_neither_boxes_nor_colours() -> None:
    for words in (["--help"], ["nodes", "--help"], ["nodes", "drain", "--help"], ["statsu"]):
        said = run_command(*words)
        assert (said.stdout + said.stderr).isascii(), words
        assert "\x1b" not in said.stdout + said.stderr


def on_a_terminal(*words: str, **environment: str) -> str:
    """Return all that a command writes to a terminal."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # noqa: TID251 - a child's
    return run_on_terminal(*words, env=kept | environment)[1]


def test_colours_are_for_terminals_that_want_them() -> None:
    assert "\x1b[31m" in on_a_terminal("statsu", TERM="xterm")
    assert "\x1b" not in on_a_terminal("statsu", TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("statsu", TERM="dumb")


@pytest.mark.parametrize("words", [("config", "show"), ("--help",), ("completion", "bash")])
def test_a_reader_that_leaves_early_is_no_error(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        done = subprocess.run([COMMAND, *words], stdout=nobody, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (exits.PIPE_CLOSED, b"")


def test_ctrl_c_is_quiet_and_has_its_own_status() -> None:
    words = [COMMAND, "sim-node", "--port", "0"]  # serves until then, and ends well
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as served:
        assert served.stdout is not None
        served.stdout.readline()
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == exits.DONE


def test_ctrl_c_in_the_middle_of_anything_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("forebay.cli.status._look", interrupted)
    done = CliRunner().invoke(app, ["status"])
    assert (done.exit_code, done.output) == (exits.INTERRUPTED, "")


def test_a_list_of_verbs_imports_nothing_of_the_gateway() -> None:
    look = (
        "import sys; from forebay.cli.main import app; from typer.testing import CliRunner;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "tab = {'_FOREBAY_COMPLETE': 'complete_bash', 'COMP_WORDS': 'forebay s'};"
        "tabbed = CliRunner(env=tab | {'COMP_CWORD': '-1'}).invoke(app, prog_name='forebay');"
        "assert 'serve' in tabbed.stdout;"
        "found = {'forebay.settings', 'uvicorn', 'forebay.gateway', 'httpx'} & set(sys.modules);"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", look], timeout=60, check=True)


def test_what_is_wrong_with_a_number_is_said_in_words() -> None:
    done = CliRunner().invoke(app, ["jobs", "show", "seven"])
    assert done.exit_code == exits.USAGE
    assert "'ID'" in done.stderr
    assert "number" in done.stderr
