"""The `forebay` command."""

from typing import Annotated

import typer

from forebay import __version__
from forebay.cli.config import config_app
from forebay.cli.keys import keys_app
from forebay.cli.serve import serve
from forebay.cli.sim_node import sim_node

app = typer.Typer(
    name="forebay",
    help="Forebay, the queue in front of your LLMs.",
    epilog="Today this package is a library: the scheduler core (forebay.core), the continuous-"
    "batching queue (forebay.batching) and a simulator (forebay.testing). The gateway and its "
    "verbs come next; the README says where things stand.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("serve")(serve)
app.add_typer(config_app)
app.add_typer(keys_app)
app.command("sim-node")(sim_node)


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
