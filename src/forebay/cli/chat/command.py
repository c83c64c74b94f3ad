"""`forebay chat`: chat with a model, and show the queue position while waiting."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import GatewayUrl, KeyEnv  # noqa: TC001 - Typer reads them
from forebay.cli.offers import model_names
from forebay.cli.output.console import fail

EPILOG = (
    "Ctrl-C ends an answer, a second one leaves, as Ctrl-D does. From a pipe, each line is a "
    "prompt; then it exits with 1 if a turn failed."
)


def chat(
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Continue this session.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="Model to use; default: the first one listed.",
            autocompletion=model_names,
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System prompt of a new session.")
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
) -> None:
    """Chat with a model. The gateway stores the conversation, so it can be continued later."""
    if session is not None and system is not None:
        fail("--system is for a new session; an existing one has its own.", code=USAGE)
    from forebay.cli.chat import conversation  # slow to import, and --help must be quick

    options = conversation.ChatOptions(session, model, system, url, key_env)
    raise typer.Exit(conversation.chat(options))
