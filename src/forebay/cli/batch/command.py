"""`forebay batch`: run a file of requests on your own machines, as OpenAI's batch API does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.offers import model_names, one_of
from forebay.cli.output.console import fail
from forebay.cli.verbs import DefaultVerbGroup

if TYPE_CHECKING:
    from forebay.cli.batch.session import NewBatch

EPILOG = (
    "Exits with 0 when every line was answered, 1 when some failed, 2 for a usage error, 3 when "
    "no gateway can be reached, 4 when it wants another key, 130 after Ctrl-C."
)
BatchId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the batch, from `forebay batch list`.")
]
WINDOW = re.compile(r"[1-9][0-9]{0,3}[hd]")


class BatchGroup(DefaultVerbGroup):
    """`forebay batch FILE.jsonl` is `forebay batch run FILE.jsonl`."""

    default = "run"
    takes_file = True


batch_app = typer.Typer(
    name="batch",
    cls=BatchGroup,
    help="Run a file of requests as a batch, and fetch the answers; follow, list, show and cancel "
    "batches.",
    epilog="forebay batch FILE.jsonl is short for forebay batch run FILE.jsonl; a file that is "
    "named like a verb needs ./ before it.",
    no_args_is_help=True,
)
BATCH_STATUSES = (
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling",
    "cancelled",
)  # fmt: skip


@batch_app.command(epilog=EPILOG)
def run(  # noqa: PLR0913 - Typer reads the options from the signature
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="JSONL file with one request per line, as in OpenAI's batch API.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="F", help="File for the answers; default: FILE.out.jsonl."),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="F", help="File for failed lines; default: FILE.errors.jsonl."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="E", help="Endpoint of the requests; default: the first line's url."),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            metavar="W",
            help="Time limit, such as 24h or 7d; requests not completed by then expire.",
        ),
    ] = "24h",
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Run a file of requests as a batch, and fetch the answers.

    Ctrl-C leaves the batch running; `forebay batch follow ID` goes on with it.
    """
    if not WINDOW.fullmatch(window):
        fail(f"--window {window!r}: write hours or days, such as 24h or 7d.", code=USAGE)
    from forebay.cli.batch.session import NewBatch  # slow to import, and --help must be quick

    stem = file.with_suffix("") if file.suffix == ".jsonl" else file
    _run(
        NewBatch(file, endpoint, window), stem, (out, errors), GatewayClient(url, key_env), as_json
    )


@batch_app.command(epilog=EPILOG)
def follow(
    batch_id: BatchId,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="F", help="File for the answers; default: ID.out.jsonl.")
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="F", help="File for failed lines; default: ID.errors.jsonl."),
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Follow a batch to its end, and fetch the answers."""
    _run(batch_id, Path(batch_id), (out, errors), GatewayClient(url, key_env), as_json)


def _run(
    batch: NewBatch | str,
    stem: Path,
    given: tuple[Path | None, Path | None],
    client: GatewayClient,
    as_json: bool,
) -> NoReturn:
    from forebay.cli.batch.run import BatchOutputs
    from forebay.cli.batch.session import run_batch

    out, errors = given
    outputs = BatchOutputs(
        out or stem.with_name(stem.name + ".out.jsonl"),
        errors or stem.with_name(stem.name + ".errors.jsonl"),
    )
    run_batch(batch, outputs, client, as_json=as_json)


@batch_app.command("list")
def list_batches(
    *,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only those of this status, such as in_progress or completed.",
            autocompletion=one_of(*BATCH_STATUSES),
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Only batches with a line for this model.", autocompletion=model_names),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="Maximum number to list, newest first.")
    ] = 20,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """List batches, including ended ones, newest first."""
    if status is not None and status not in BATCH_STATUSES:
        fail(f"--status {status!r}: write one of {', '.join(BATCH_STATUSES)}.", code=USAGE)
    from forebay.cli.batch.listing import show_list

    show_list(GatewayClient(url, key_env), {"status": status, "model": model}, limit, as_json)


@batch_app.command("show")
def show_batch(
    batch_id: BatchId, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Show one batch."""
    from forebay.cli.batch.listing import show_one

    show_one(GatewayClient(url, key_env), batch_id, as_json)


@batch_app.command("cancel")
def cancel_batches(
    batch_ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids of batches, from `forebay batch list`."),
    ],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Cancel batches; completed answers are kept. Exits with 1 if one could not be."""
    from forebay.cli.batch.listing import cancel_each

    cancel_each(GatewayClient(url, key_env), batch_ids, as_json)
