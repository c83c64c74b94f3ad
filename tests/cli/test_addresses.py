"""`--url`: whatever is typed there, each command says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "status",
    "top --once",
    "nodes list",
    "nodes drain n",
    "jobs list",
    "jobs watch 1",
    "chat",
    "bench --duration 1s",
    "batch FILE",
)
BAD = (
    "http://[::1",
    "http://[zzz]:1",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:-1",
    "http://127.0.0.1:0",
    "http://127.0.0.1:port",
    "http://127.0.0.1:",
    "http://me:secret@127.0.0.1:7800",
    "http://127.0.0.1:7800?x=1",
    "http://",
    "http://a b",
    f"http://{'a' * 64}.example",
    "http://gäte.example",
    "http://127.0.0.1:7800/\x1b[2J",
    "ftp://127.0.0.1",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_is_wrong_with_an_address(command: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{}\n")
    words = [str(file) if word == "FILE" else word for word in command.split()]
    for url in BAD:
        done = CliRunner().invoke(app, [*words, "--url", url])
        assert isinstance(done.exception, SystemExit), (url, done.exception)
        assert done.exit_code == 2, url
        assert done.stderr.startswith("forebay: --url: "), url
        assert "secret" not in done.stderr and "\x1b" not in done.stderr  # noqa: PT018
        assert done.stdout == ""


def test_a_port_that_no_address_has_is_named() -> None:
    done = CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:99999"])
    assert "a port is from 1 to 65535" in done.stderr
