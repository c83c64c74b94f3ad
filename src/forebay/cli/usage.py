"""`forebay usage`: requests and tokens per key, user and model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlencode

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.output.console import fail, tell, tell_json
from forebay.cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from forebay.api.records import HourlyUsage

Group = Literal["key", "user", "model"]


def usage(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    by: Annotated[
        Group | None, typer.Option(help="Group by this, and sum over the others.")
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start: 2026-01-31 or 2026-01-31T12:00Z; default: 24 hours ago.",
        ),
    ] = "",
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="End; default: now.")] = "",
    hourly: Annotated[bool, typer.Option("--hourly", help="Show each hour separately.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, hour by hour.")] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Show requests and tokens per key, user and model.

    An admin key sees everybody's, another key its own.
    """
    from forebay.api.records import Usage

    if as_csv and as_json:
        fail("--csv and --json: name one of them.", code=USAGE)
    asked = {"by": by, "from": since, "to": until}
    query = urlencode({name: value for name, value in asked.items() if value})
    client = GatewayClient(url, key_env)
    if as_csv:
        tell(_csv(client, f"/v1/usage?{query}&format=csv"), nl=False)
        return
    reply = client.insist("GET", f"/v1/usage?{query}", Usage)
    if as_json:
        tell_json(reply.raw["data"])
    elif reply.value.data:
        from forebay.cli.output.tables import show

        show(_table(reply.value.data, hourly=hourly))
    else:
        tell("There was no usage in that time.")


def _csv(client: GatewayClient, path: str) -> str:
    from forebay.sdk.transport import ApiCall

    with client.or_exit():
        _, _, content = client.run(lambda transport: transport.fetch(ApiCall("GET", path)))
    return content.decode(errors="replace")


def _table(rows: Iterable[HourlyUsage], *, hourly: bool) -> Table:
    """Return one row for each key, user and model, or for each of them in each hour."""
    from forebay.cli.output.tables import plain_table

    sums: dict[tuple[str | None, ...], list[int]] = {}
    for row in rows:
        whose: tuple[str | None, ...] = (row.hour if hourly else None, row.key, row.user, row.model)
        counts = sums.setdefault(whose, [0, 0, 0])
        for index, count in enumerate((row.requests, row.prompt_tokens, row.output_tokens)):
            counts[index] += count
    shown = [i for i in range(4) if any(whose[i] is not None for whose in sums)]
    names = ("Hour", "Key", "User", "Model")
    table = plain_table(*(names[i] for i in shown), "Requests", "Tokens in", "Tokens out")
    for names_of, counts in sums.items():
        table.add_row(*(printable(names_of[i]) or "-" for i in shown), *map(str, counts))
    return table
