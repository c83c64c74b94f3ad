"""`forebay serve`: run the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.invocation import as_called
from forebay.cli.options import ConfigFile, SetOptions  # noqa: TC001 - Typer reads the annotations
from forebay.cli.output.console import check_config, fail

if TYPE_CHECKING:
    from forebay.cli.serve.arguments import ServeArguments
    from forebay.settings import Settings


def serve(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A model server to use; may be repeated."),
    ] = None,
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A GGUF file to run with the built-in llama.cpp."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Run no model: every answer is simulated.")
    ] = False,
    prompt_deadline_ms: Annotated[
        int | None, typer.Option(help="Deadline of a session's prompt; 0: no limit.")
    ] = None,
    max_pending_prompts: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Maximum unfinished prompts of a session; 0 and inf: no limit."
        ),
    ] = None,
    self_check: Annotated[
        bool,
        typer.Option(
            "--self-check",
            help="Check the internal state every second; exit 1 if it is inconsistent.",
        ),
    ] = False,
    set_: SetOptions = None,
) -> None:
    """Run the gateway: the queue in front of your models."""
    from forebay.cli.serve.arguments import ServeArguments
    from forebay.settings.sources import parse_value

    pending = None if max_pending_prompts is None else parse_value(max_pending_prompts, False)
    flags: dict[str, object] = {
        "server.host": host,
        "server.port": port,
        "sessions.prompt_deadline_ms": prompt_deadline_ms,
        "sessions.max_pending_prompts": pending,
    }
    if node:
        flags["nodes"] = [{"url": url} for url in node]
    check_config(config)
    if gguf is not None and not gguf.is_file():
        fail(f"--gguf {gguf}: there is no such file. Name a model in GGUF format.", code=USAGE)
    if simulate and (node or gguf):
        fail("--simulate runs no model: leave out --node and --gguf.", code=USAGE)
    named = [None if path is None else str(path) for path in (config, gguf)]
    _run(ServeArguments(named[0], set_ or [], flags, named[1], self_check, simulate))


def _run(arguments: ServeArguments) -> None:
    """Run the gateway, or end the command with why that is not possible, and what to do."""
    from forebay.cli.serve.failures import ending_with_words
    from forebay.gateway.logs import close_streams
    from forebay.settings import SettingsError

    try:
        settings = arguments.read()
    except SettingsError as error:
        config = arguments.config
        checked = as_called(f"config check{f' {config}' if config else ''}")
        fail(f"{error}\nNothing was started. Correct this, then: {checked}", code=USAGE)
    try:
        with ending_with_words(settings):
            _check_for_a_model(settings, arguments)
            if (workers := settings.server.worker_count()) > 1:
                from forebay.cli.serve.parent import run_workers

                raise typer.Exit(run_workers(settings.server, workers, arguments))
            from forebay.cli.serve.server import (
                run_gateway,
            )  # heavy: of no use to a list of options

            run_gateway(settings, arguments)
    finally:
        close_streams()


def _check_for_a_model(settings: Settings, arguments: ServeArguments) -> None:
    """Raise BackendFailed where there would be nothing to answer with."""
    if arguments.needs_default_nodes(settings) and not arguments.simulate:
        from forebay.gateway.default_node import check_for_a_model

        asyncio.run(check_for_a_model(arguments.model_file))
