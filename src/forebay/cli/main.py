"""The `forebay` command."""

import os
import sys
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
    "init": Verb(
        "forebay.cli.init:init",
        "Write a settings file with the model servers found on this machine.",
    ),
    "doctor": Verb(
        "forebay.cli.doctor.command:doctor",
        "Check what a gateway needs on this machine, and say what to change.",
    ),
    "status": Verb(
        "forebay.cli.status:status",
        "Show the queue, the nodes and the models of a gateway, or of its whole fleet.",
    ),
    "models": Verb(
        "forebay.cli.models:models", "Show the models of a gateway, and the nodes that have them."
    ),
    "top": Verb(
        "forebay.cli.top:top",
        "Watch a running gateway live: the queue, the nodes, models and jobs.",
    ),
    "logs": Verb(
        "forebay.cli.logs:logs",
        "Show an access log in readable form; lines that are no requests are shown as they are.",
    ),
    "chat": Verb(
        "forebay.cli.chat.command:chat",
        "Chat with a model. The gateway stores the conversation, so it can be continued later.",
    ),
    "batch": Verb(
        "forebay.cli.batch.command:batch_app",
        "Run a file of requests as a batch, and fetch the answers; follow, list, show and cancel "
        "batches.",
    ),
    "bench": Verb(
        "forebay.cli.bench.command:bench",
        "Load-test an OpenAI-compatible server.",
    ),
    "sim": Verb(
        "forebay.cli.sim.command:sim",
        "Replay recorded traffic in virtual time, with other nodes, other settings or more users.",
    ),
    "queue": Verb(
        "forebay.cli.queue:queue_app", "List, show and cancel the requests of a gateway."
    ),
    "ps": Verb(
        "forebay.cli.queue:list_requests",
        "List waiting and running requests, or the last that ended.",
    ),
    "nodes": Verb(
        "forebay.cli.nodes:nodes_app",
        "List, add, remove, drain and resume the nodes of a running gateway.",
    ),
    "jobs": Verb(
        "forebay.cli.jobs.command:jobs_app",
        "Submit durable jobs to a running gateway, and follow them.",
    ),
    "reload": Verb("forebay.cli.reload:reload", "Reload the settings of a running gateway."),
    "sessions": Verb(
        "forebay.cli.sessions:sessions_app", "List, show and delete the sessions of a gateway."
    ),
    "config": Verb("forebay.cli.config.command:config_app", "Write, check and show the settings."),
    "keys": Verb("forebay.cli.keys:keys_app", "List, create, renew and revoke API keys."),
    "usage": Verb("forebay.cli.usage:usage", "Show requests and tokens per key, user and model."),
    "node": Verb(
        "forebay.cli.serve.node:node",
        "Guard a model server: admit as many requests as it has slots, answer 429 to others.",
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
        "Print the completion script for your shell.",
    ),
}
"""Every verb there is, in the order in which they are shown."""


MEANT: Mapping[str, str] = {
    word: verb
    for verb, words in {
        "serve": "start run up server gateway launch proxy",
        "init": "setup configure new quickstart",
        "doctor": "check diagnose verify test troubleshoot why",
        "status": "info health show stat state summary",
        "top": "watch monitor dashboard htop live ui",
        "models": "ls list model tags",
        "ps": "processes inflight",
        "queue": "requests request waiting pending running line",
        "queue cancel": "cancel kill abort",
        "logs": "tail access follow journal",
        "usage": "users user tokens cost costs billing stats quota",
        "sessions": "conversations conversation threads thread history",
        "chat": "ask talk prompt repl",
        "batch": "batches bulk",
        "bench": "load benchmark perf stress",
        "sim": "replay simulate what-if plan",
        "nodes": "backends backend servers workers hosts engines",
        "nodes add": "add",
        "nodes drain": "drain",
        "jobs": "tasks work",
        "config": "settings conf options",
        "reload": "restart refresh apply hup",
        "--version": "version about",
        "keys": "auth apikey apikeys api-keys secrets",
        "node": "guard agent register",
        "demo": "play example try",
    }.items()
    for word in words.split()
}
"""Words that people try, by what they mean."""


class ForebayGroup(VerbGroup):
    """The verbs of `forebay`."""

    table = VERBS
    meant: Mapping[str, str] = MEANT


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
    _replace_closed_streams()
    app()


def _replace_closed_streams() -> None:
    """Use the null device for a standard stream that the caller has closed (`>&-`).

    Without it, the next file or socket that is opened would get the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
