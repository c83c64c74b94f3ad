"""The `forebay` command."""

from collections.abc import Mapping
from typing import Annotated

import typer

from forebay import __version__
from forebay.build import describe_build
from forebay.cli.exits import EPILOG
from forebay.cli.verbs import Verb, VerbGroup

VERBS: Mapping[str, Verb] = {
    "serve": Verb(
        "forebay.cli.serve.command:serve", "Run the gateway: the queue in front of your models."
    ),
    "status": Verb(
        "forebay.cli.status:status",
        "Show the queue, the nodes and the models of a gateway, or of its whole fleet.",
    ),
    "top": Verb(
        "forebay.cli.top:top",
        "Watch a running gateway live: the queue, the nodes, models and jobs.",
    ),
    "chat": Verb(
        "forebay.cli.chat.command:chat",
        "Talk with a model. The gateway holds the conversation, so it can be taken up again.",
    ),
    "batch": Verb(
        "forebay.cli.batch.command:batch_app",
        "Run a file of requests as a batch, and fetch the answers; list, show and cancel batches.",
    ),
    "bench": Verb(
        "forebay.cli.bench.command:bench_app",
        "Load an OpenAI-compatible server, and say how it did.",
    ),
    "sim": Verb(
        "forebay.cli.sim.command:sim",
        "Replay recorded traffic in virtual time, with other nodes, other rules or more users.",
    ),
    "nodes": Verb("forebay.cli.nodes:nodes_app", "See and change the nodes of a running gateway."),
    "jobs": Verb(
        "forebay.cli.jobs.command:jobs_app",
        "Give a running gateway durable work, and see what became of it.",
    ),
    "sessions": Verb(
        "forebay.cli.sessions:sessions_app", "See and end the conversations that a gateway holds."
    ),
    "config": Verb("forebay.cli.config.command:config_app", "Write, check and show the settings."),
    "keys": Verb("forebay.cli.keys:keys_app", "Make API keys."),
    "node": Verb(
        "forebay.cli.serve.node:node",
        "Guard a model server: exactly its slots through, 429 at once for anything more.",
    ),
    "sim-node": Verb(
        "forebay.cli.serve.sim_node:sim_node",
        "Run a simulated node: the timing of a model without a model, for tests and demos.",
    ),
    "demo": Verb(
        "forebay.cli.serve.demo:demo",
        "Watch a queue at work: three simulated nodes, a greedy script, two people, a batch.",
    ),
    "completion": Verb(
        "forebay.cli.completion:completion_app",
        "Print a script by which your shell completes what you type.",
    ),
}
"""Every verb there is, in the order in which they are shown."""


class ForebayGroup(VerbGroup):
    """The verbs of `forebay`."""

    table = VERBS


app = typer.Typer(
    name="forebay",
    cls=ForebayGroup,
    help="Forebay, the queue in front of your LLMs: one endpoint for every model server you have, "
    "with fair and bounded waiting.",
    epilog="Start with: forebay serve. It finds Ollama, llama.cpp, vLLM and LM Studio on this "
    f"machine, or runs a small model of its own, and says what to try next.\n\n{EPILOG}",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forebay {__version__} ({describe_build()})")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def forebay(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the build.",
        ),
    ] = False,
) -> None:
    """Say what there is; verbs are added one file each."""


def main() -> None:
    """Run the command line."""
    app()
