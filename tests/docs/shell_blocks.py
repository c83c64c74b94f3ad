"""The shell commands that the pages show: taken apart, and sorted by how they are tested."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
END_OF_COMMAND = re.compile(r" (?:&&|;) ")

NOT_RUN = {
    "source": "changes the reader's shell",
    "export": "changes the reader's shell",
    "chmod": "changes the machine",
    "cp": "changes the machine",
    "mkdir": "changes the machine",
    "install": "changes the machine",
    "python3": "makes a virtual environment outside the repository",
    "pip": "fetches packages",
    "pipx": "fetches packages",
    "uv": "fetches packages",
    "python": "needs PyTorch: tests/end_to_end/test_engine.py runs the example",
    "systemctl": "needs systemd as the first process",
    "docker": "needs a container engine",
    "podman": "needs a container engine",
    "llama-server": "another program: tests/real runs its server",
    "llm": "another program",
    "lms": "another program",
    "ollama": "another program",
    "open-webui": "another program",
    "vllm": "another program",
    "valkey-server": "another program: tests/fleet runs it",
    "make": "its targets are looked up in the Makefile",
}
"""First words that no test runs, and why not."""

ONLY_PARSED = {
    "serve": "runs until it is stopped: tests/end_to_end runs it",
    "sim-node": "runs until it is stopped: tests/nodes/sim/test_sim_command.py runs it",
    "node": "runs until it is stopped: tests/guard/test_command.py runs it",
    "chat": "talks with a person: tests/sdk/test_chat_command.py runs it",
    "top": "wants a terminal",
    "demo": "runs until it is stopped",
    "bench": "loads the machine",
    "jobs watch": "runs until it is stopped: tests/cli/test_jobs.py runs it",
}
"""Verbs of ours that are only parsed as the program would (tests/test_docs.py), and why."""


class Line(NamedTuple):
    """One command as a page shows it."""

    page: Path
    text: str
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """Assignments before it, or instead of it."""

    @property
    def program(self) -> str:
        return Path(self.words[0]).name if self.words else ""

    @property
    def verb(self) -> str:
        """Which verb of `forebay` it is, if it is one."""
        is_ours = self.program == "forebay" and len(self.words) > 1
        endless = self.words[1:] == ("jobs", "watch")
        return "jobs watch" if endless else self.words[1] if is_ours else ""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def lines_of(page: Path) -> list[Line]:
    """Return every command of a page, in order; a loop is what it repeats."""
    return [
        line
        for block in BLOCK.findall(page.read_text())
        for command in _whole(block)
        for part in END_OF_COMMAND.split(command)
        if (line := _line(page, part)) is not None
    ]


def loops_of(page: Path) -> list[str]:
    """Return the blocks that are small programs, to be run as they are."""
    return [block for block in BLOCK.findall(page.read_text()) if block.startswith("for ")]


def _whole(block: str) -> list[str]:
    """Put together what a backslash or a quote leads on into the next line."""
    if block.startswith("for "):
        return []
    commands, begun = [], ""
    for line in block.replace("\\\n", " ").splitlines():
        begun = f"{begun}\n{line}" if begun else line
        try:
            shlex.split(begun, comments=True)
        except ValueError:  # no closing quotation yet
            continue
        commands.append(begun)
        begun = ""
    assert not begun, f"a quote is never closed: {begun}"
    return commands


def _line(page: Path, text: str) -> Line | None:
    words = shlex.split(text, comments=True)
    variables = []
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables.append((name, value))
    if ">" in words:  # where its output goes is the reader's affair
        words = words[: words.index(">")]
    return Line(page, text.strip(), tuple(words), tuple(variables)) if words or variables else None
