"""The page of commands has every command there is, and copes with whatever help they have."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import pytest
import typer.main

from forebay.cli.main import app
from tools.reference import commands as reference

ROOT = Path(__file__).parent.parent.parent
COMMANDS = dict(reference.commands(typer.main.get_command(app), ("forebay",)))


@cache
def page() -> str:
    return reference.page()


@pytest.mark.parametrize("words", list(COMMANDS), ids=" ".join)
def test_a_command_has_its_section_with_every_option(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    _, _, rest = page().partition(f"\n## {' '.join(words)}\n")
    section = rest.split("\n## ")[0]
    assert section
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.opts[0] in section


def odd_program() -> typer.Typer:
    """A program with all that could trip the page: nesting, markup, pipes, hidden parts."""
    odd = typer.Typer(name="odd", help="Odd | things.", rich_markup_mode="rich")
    inner = typer.Typer(name="inner", help="Inner <things>.")
    deeper = typer.Typer(name="deeper", help="Deeper things.")

    @deeper.command()
    def dig(
        depth: Annotated[int, typer.Option(min=1, help="How [bold]deep[/bold].")],
        names: Annotated[list[str] | None, typer.Option(help="Of whom.")] = None,
        fast: Annotated[bool, typer.Option(help="Whether to hurry.")] = True,
        secret: Annotated[str, typer.Option(hidden=True)] = "",
    ) -> None:
        """Dig a [green]hole[/green].

        Exits with 0.\f Not for people.
        """

    @odd.command(hidden=True)
    def unseen() -> None:
        """Do what nobody should see."""

    inner.add_typer(deeper)
    odd.add_typer(inner)
    return odd


def test_nested_commands_and_marked_up_help_come_out_plain() -> None:
    page = reference.page(typer.main.get_command(odd_program()))
    assert "## odd inner deeper dig\n" in page
    assert "Dig a hole." in page
    assert "Exits with 0." in page
    assert "| `--depth N` | needed | How deep. From 1. |" in page
    assert "| `--fast`, `--no-fast` | yes | Whether to hurry. |" in page
    assert "Odd \\| things." in page
    assert "Inner &lt;things>." in page
    for unwanted in ("[bold]", "[green]", "Not for people", "unseen", "--secret"):
        assert unwanted not in page
