"""The Tab key: what a real shell is offered after `forebay`."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.main import VERBS, app
from forebay.settings.names import valid_keys

if TYPE_CHECKING:
    from .conftest import Desk

BIN = str(Path(sys.executable).parent)
IN_BASH = """
PATH="$0:$PATH"
source <(forebay completion bash)
for COMP_LINE; do
  COMP_POINT=${#COMP_LINE} COMPREPLY=()
  _forebay_completion forebay "${COMP_LINE##*[ :=]}"
  echo "${COMPREPLY[@]}"
done
"""
IN_FISH = 'set -p PATH $argv[1]; forebay completion fish | source; complete -C "$argv[2]"'


def in_bash(*lines: str, folder: str = BIN) -> list[list[str]]:
    """Return what the `forebay` of a folder offers behind each line."""
    command = ["bash", "--norc", "-c", IN_BASH, folder, *lines]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def values(*words: str) -> list[str]:
    """Return what is offered for the last word, the others being complete."""
    environ = {
        "_FOREBAY_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(("forebay", *words)),
        "COMP_CWORD": "-1",
    }
    done = CliRunner(env=environ).invoke(app, prog_name="forebay")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split()


async def test_bash_is_offered_verbs_options_nodes_and_models(desk: Desk, quick_bin: str) -> None:
    node = await desk.node(models=("llama3:8b", "mistral"))
    gateway = await desk.start(node)
    url = f"--url http://127.0.0.1:{gateway.port}"
    wanted = {
        "forebay jo": ["jobs"],
        "forebay nodes re": ["remove", "resume"],
        "forebay status --js": ["--json"],
        f"forebay nodes drain {url} ": ["n1"],
        f"forebay chat {url} --model mis": ["mistral"],
        f"forebay chat {url} --model llama3:": ["8b"],  # bash has the rest already
        "forebay serve --set queue.fairn": ["queue.fairness="],
        "forebay serve --set queue.fairness=f": ["fifo"],
        "forebay jobs list --status f": ["failed"],
    }
    offered = await asyncio.to_thread(in_bash, *wanted, folder=quick_bin)
    assert dict(zip(wanted, offered, strict=True)) == wanted


def test_bash_is_offered_nothing_and_told_nothing_where_no_gateway_answers() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert in_bash(f"forebay nodes drain --url {url} ") == [[]]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_is_offered_verbs_with_their_meaning() -> None:
    command = ["fish", "--no-config", "-c", IN_FISH, BIN, "forebay sta"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"status\t{VERBS['status'].help}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_that_its_shell_can_read(shell: str) -> None:
    script = CliRunner().invoke(app, ["completion", shell]).stdout
    assert "forebay" in script
    if (found := shutil.which(shell)) is not None:
        subprocess.run([found, "-n"], input=script, text=True, timeout=60, check=True)


def test_every_verb_is_offered_except_hidden_ones() -> None:
    assert values("") == list(VERBS)
    assert values("completion", "") == ["bash", "zsh", "fish"]


def test_every_setting_is_offered_and_those_with_few_values_offer_them() -> None:
    keys = {f"{key}=" for key in valid_keys() if "." in key}
    assert set(values("serve", "--set", "")) <= keys
    assert len(values("serve", "--set", "")) == min(len(keys), 100)
    assert values("serve", "--set", "queue.enabled=") == [
        "queue.enabled=true",
        "queue.enabled=false",
    ]
    assert values("serve", "--set", "no.such=") == []


def test_a_path_is_left_to_the_shell() -> None:
    for words in (("serve", "--config", ""), ("batch", "run", ""), ("config", "check", "x")):
        assert values(*words) == []


def test_an_option_is_offered_once_unless_it_may_be_repeated() -> None:
    assert "--json" in values("status", "--")
    assert "--json" not in values("status", "--json", "--")
    assert "--set" in values("serve", "--set", "queue.max_size=1", "--")


def test_a_line_with_an_open_quote_is_read_as_far_as_it_goes() -> None:
    assert in_bash('forebay "sta') == [["status"]]


def test_zsh_hears_of_colons_in_names_as_it_wants_them() -> None:
    environ = {"_FOREBAY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "forebay nodes dr"}
    done = CliRunner(env=environ).invoke(app, prog_name="forebay")
    assert done.stdout.startswith('_arguments \'*: :(("drain":"')
