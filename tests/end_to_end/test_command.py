"""The installed command, in a subprocess, as a person would run it."""

import subprocess
import sys
from pathlib import Path

import forebay
from forebay.build import describe_build

COMMAND = Path(sys.executable).parent / "forebay"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_tells_its_version() -> None:
    done = run("--version")
    said = f"forebay {forebay.__version__} ({describe_build()})"
    assert (done.returncode, done.stdout.strip()) == (0, said)


def test_help_says_what_it_is_and_what_there_is() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "queue in front of your LLMs" in done.stdout


def test_an_unknown_option_is_refused_with_its_name() -> None:
    done = run("--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr
