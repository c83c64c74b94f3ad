"""Talking to people at a terminal: what is said, and how a command fails."""

from __future__ import annotations

from typing import NoReturn

import typer


def say(text: str) -> None:
    """Say something to whoever is watching; not part of what a program would read."""
    typer.echo(text, err=True)


def fail(message: str, *, code: int = 1) -> NoReturn:
    """End the command with a message that says what is wrong."""
    typer.secho(f"forebay: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)
