"""`forebay batch`: run a file of requests on your own machines, as OpenAI's batch API does."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayUrl, KeyEnv  # noqa: TC001 - Typer reads them
from forebay.cli.output.console import fail

EPILOG = (
    "Exits with 0 when every line was answered, 1 when some failed, 2 for a usage error, 3 when "
    "no gateway can be reached, 4 when it wants another key, 130 after Ctrl-C. "
    "What is needed to go on is kept beside the file, in FILE.jsonl.forebay."
)
WINDOW = re.compile(r"[1-9][0-9]{0,3}[hd]")


def batch(  # noqa: PLR0913 - Typer reads the options from the signature
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="One request for each line, as OpenAI's.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Where the answers go; else FILE.out.jsonl."),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Where failed lines go, if any; else FILE.errors.jsonl."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="E", help="What the lines ask for; else the first line's url."),
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="W", help="What is not done by then expires: 24h, 7d.")
    ] = "24h",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End this file's batch, and fetch what is done.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Begin anew; a batch of before that still runs is ended."),
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Run a file of requests as a batch, and fetch the answers.

    Ctrl-C leaves the batch running; the same command again goes on with it.
    """
    if cancel and restart:
        fail("--cancel ends a batch and --restart begins one: give one of them.", code=USAGE)
    if not WINDOW.fullmatch(window):
        fail(f"--window {window!r}: write hours or days, such as 24h or 7d.", code=USAGE)
    from forebay.cli.batch.run import BatchOutputs  # slow to import, and --help must be quick
    from forebay.cli.batch.session import BatchOptions, run_batch

    stem = file.with_suffix("") if file.suffix == ".jsonl" else file
    outputs = BatchOutputs(
        out or stem.with_name(stem.name + ".out.jsonl"),
        errors or stem.with_name(stem.name + ".errors.jsonl"),
        errors_are_ours=errors is None,
    )
    run_batch(BatchOptions(file, outputs, endpoint, window, cancel, restart, as_json), url, key_env)
