"""`forebay chat`: talk with a model; who has to wait sees the place in line."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import GatewayUrl, KeyEnv  # noqa: TC001 - Typer reads them
from forebay.cli.offers import model_names
from forebay.cli.output.console import fail

EPILOG = (
    "While you talk: /help lists what else can be said. Ctrl-C ends an answer, a second one "
    "leaves, as Ctrl-D does. From a pipe, each line is a prompt; then it exits with 1 if a turn "
    "failed."
)


def chat(
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with a session of before.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="Whom to talk with; else the first there is.",
            autocompletion=model_names,
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How a new session should behave.")
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
) -> None:
    """Talk with a model. The gateway holds the conversation, so it can be taken up again."""
    if session is not None and system is not None:
        fail("--system is for a new session; one that is taken up has its own.", code=USAGE)
    from forebay.cli.chat import conversation  # slow to import, and --help must be quick

    options = conversation.ChatOptions(session, model, system, url, key_env)
    raise typer.Exit(conversation.chat(options))
