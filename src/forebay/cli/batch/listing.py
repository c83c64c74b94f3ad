"""`forebay batch list`, `show` and `cancel`: the batches that a gateway has."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from rich.text import Text

from forebay.api.batches import Batch, BatchList
from forebay.cli.each import for_each
from forebay.cli.invocation import at_gateway
from forebay.cli.output.console import tell, tell_json
from forebay.cli.output.tables import plain_table, show
from forebay.cli.output.text import printable, short
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from forebay.cli.gateway import GatewayClient

COLOURS = {
    "validating": "yellow",
    "in_progress": "cyan",
    "finalizing": "cyan",
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "cancelling": "dim",
    "cancelled": "dim",
}
ERRORS_SHOWN = 5


def show_list(
    client: GatewayClient, filters: Mapping[str, str | None], limit: int, as_json: bool
) -> None:
    """Print batches as a table, those that every filter which is given lets through."""
    given = {name: value for name, value in filters.items() if value is not None}
    asked = urlencode({"limit": limit, **given})
    reply = client.insist("GET", f"/v1/batches?{asked}", BatchList)
    if as_json:
        tell_json(reply.raw["data"])
    elif reply.value.data:
        show(batch_table(reply.value.data, _now()))
    elif given:
        tell(f"There are no such batches. All of them: {at_gateway('batch list')}")
    else:
        tell(f"There are no batches. Run a file of requests with: {at_gateway('batch FILE.jsonl')}")


def show_one(client: GatewayClient, batch_id: str, as_json: bool) -> None:
    """Print all about one batch."""
    reply = client.insist("GET", _path(batch_id), Batch)
    if as_json:
        tell_json(reply.raw)
    else:
        show(batch_text(reply.value, _now()))


def cancel_each(client: GatewayClient, batch_ids: Sequence[str], as_json: bool) -> None:
    """Cancel batches; one that is refused does not stop the others."""
    for_each(client, "batch", batch_ids, lambda one: ("POST", f"{_path(one)}/cancel"),
             "is being cancelled; completed answers are kept.", as_json)  # fmt: skip


def batch_table(batches: Sequence[Batch], now: float) -> Table:
    """Return batches as a table; `now` is in seconds since 1970."""
    owned = any(batch.owner is not None for batch in batches)
    table = plain_table("Batch", "Status", "Done", "Failed", "Endpoint", "Age",
                        *(["Owner"] if owned else []))  # fmt: skip
    for batch in batches:
        counts = batch.request_counts
        age = "" if batch.created_at is None else short(now - batch.created_at)
        table.add_row(
            printable(batch.id),
            Text(printable(batch.status), COLOURS.get(batch.status, "")),
            f"{counts.completed + counts.failed} of {counts.total}",
            str(counts.failed),
            printable(batch.endpoint),
            age,
            *([printable(batch.owner or "")] if owned else []),
        )
    return table


def batch_text(batch: Batch, now: float) -> Text:
    """Return all about one batch, for people."""
    counts = batch.request_counts
    text = Text(f"Batch {printable(batch.id)} is ")
    text.append(printable(batch.status), COLOURS.get(batch.status, ""))
    created = "" if batch.created_at is None else f"{short(now - batch.created_at)} ago"
    facts = {
        "Lines": f"{counts.completed} answered, {counts.failed} failed, {counts.total} in all",
        "Models": ", ".join(batch.models),
        "Endpoint": batch.endpoint,
        "Created": created,
        "Owner": batch.owner or "",
        "Input": batch.input_file_id,
        "Answers": batch.output_file_id or "",
        "Failures": batch.error_file_id or "",
    }
    for name, value in facts.items():
        if value:
            text.append(f"\n  {name:<9} {printable(value)}")
    errors = [] if batch.errors is None else batch.errors["data"]
    for error in errors[:ERRORS_SHOWN]:
        text.append(f"\n  line {error['line']}: {printable(error['message'])}", "red")
    if not batch.ended:
        ending = at_gateway(f"batch cancel {printable(batch.id)}")
        text.append(f"\nEnd it with: {ending}", "dim")
    return text


def _path(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id, safe='')}"


def _now() -> float:
    return SystemClock().utc().timestamp()
