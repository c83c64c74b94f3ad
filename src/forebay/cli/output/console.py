"""Messages to people at a terminal, and how a command fails.

Everything is cleaned here, so that no name, message or answer from elsewhere can steer a terminal:
commands write through `tell`, `say`, `complain` and `SafeConsole` only. Colours are for terminals
only, and not where NO_COLOR is set or TERM is dumb: rich knows the rules.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from forebay.cli.exits import USAGE
from forebay.cli.invocation import as_called
from forebay.cli.output.text import harmless

if TYPE_CHECKING:
    from pathlib import Path


def tell(text: str, *, nl: bool = True) -> None:
    """Write what was asked for to standard output."""
    typer.echo(harmless(text), nl=nl)


def tell_json(value: object) -> None:
    """Write a value that was asked for with --json."""
    try:
        text = json.dumps(value, indent=2)
    except RecursionError:
        fail("the answer is nested too deeply to be printed.")
    tell(text)


def say(text: str) -> None:
    """Say something to whoever is watching; not part of what a program would read."""
    typer.echo(harmless(text), err=True)


def counted(count: int, what: str) -> str:
    """Return a number with its word.

    >>> counted(1, "slot"), counted(0, "slot")
    ('1 slot', '0 slots')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def complain(message: str) -> None:
    """Say what is wrong."""
    if not sys.stderr.isatty():
        say(f"forebay: {message}")
        return
    from rich.text import Text

    from forebay.cli.output.tables import SafeConsole

    SafeConsole(stderr=True).print(Text(f"forebay: {message}", "red"), soft_wrap=True)


def fail(message: str, *, code: int = 1) -> NoReturn:
    """End the command with a message that says what is wrong."""
    complain(message)
    raise typer.Exit(code)


def check_config(path: Path | None) -> None:
    """End the command where `--config` names no file."""
    if path is not None and not path.is_file():
        wanted = as_called(f"config init {path}")
        fail(f"--config {path}: there is no such file. Write one with: {wanted}", code=USAGE)
