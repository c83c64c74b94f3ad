"""The `forebay` command."""

from typing import Annotated

import typer

from forebay import __version__

app = typer.Typer(
    name="forebay",
    help="Forebay, the queue in front of your LLMs.",
    epilog="Today this package is a library: the scheduler core (forebay.core), the continuous-"
    "batching queue (forebay.batching) and a simulator (forebay.testing). The gateway and its "
    "verbs come next; the README says where things stand.",
    no_args_is_help=True,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forebay {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def forebay(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Say what there is; verbs are added one file each."""


def main() -> None:
    """Run the command line."""
    app()
