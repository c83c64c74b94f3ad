"""`--help` says, for every command there is, what it does and what each option means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from typer.testing import CliRunner

from forebay.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, verb in getattr(command, "commands", {}).items():
        yield from commands(verb, (*words, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_a_command_and_each_of_its_options_are_explained(
    words: tuple[str, ...], command: Any
) -> None:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    assert "list[" not in done.stdout
    assert "<str" not in done.stdout
    assert command.help
    assert command.help.splitlines()[0].rstrip().endswith(".")
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} is not explained"


def test_the_list_of_commands_fits_a_terminal() -> None:
    for line in CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"]).stdout.splitlines():
        assert len(line) <= 80
