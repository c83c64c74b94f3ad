"""The `forebay` command."""

from typing import Annotated

import typer

from forebay import __version__
from forebay.cli.batch import EPILOG as BATCH_EPILOG
from forebay.cli.batch import batch
from forebay.cli.chat import EPILOG as CHAT_EPILOG
from forebay.cli.chat import chat
from forebay.cli.config import config_app
from forebay.cli.demo import EPILOG as DEMO_EPILOG
from forebay.cli.demo import demo
from forebay.cli.jobs import jobs_app
from forebay.cli.keys import keys_app
from forebay.cli.nodes import nodes_app
from forebay.cli.serve import serve
from forebay.cli.sim_node import sim_node
from forebay.cli.status import status

app = typer.Typer(
    name="forebay",
    help="Forebay, the queue in front of your LLMs: one endpoint for every model server you have, "
    "with fair and bounded waiting.",
    epilog="Start with: forebay serve. It finds Ollama, llama.cpp, vLLM and LM Studio on this "
    "machine, or runs a small model of its own, and says what to try next.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("serve")(serve)
app.command("status")(status)
app.command("chat", epilog=CHAT_EPILOG)(chat)
app.command("batch", epilog=BATCH_EPILOG)(batch)
app.add_typer(nodes_app)
app.add_typer(jobs_app)
app.add_typer(config_app)
app.add_typer(keys_app)
app.command("sim-node")(sim_node)
app.command("demo", epilog=DEMO_EPILOG)(demo)


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
