"""`forebay queue`: the requests of a running gateway one by one, and how to end them."""

from __future__ import annotations

from shlex import quote as quoted
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer
from rich.text import Text

from forebay.cli.each import for_each
from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.offers import model_names, one_of, request_ids
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.tables import plain_table, show
from forebay.cli.output.text import printable, short
from forebay.cli.verbs import SynonymGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from forebay.cli.gateway import GatewayReply
    from forebay.sdk import ListedRequest, Place, RequestPage

queue_app = typer.Typer(
    name="queue",
    cls=SynonymGroup,
    help="List, show and cancel the requests of a gateway.",
    epilog="A key sees its own requests, an admin all of them. Prompts are never shown.",
    no_args_is_help=True,
)

STATES = ("waiting", "running", "ended")
LIVE = ("running", "waiting")
COLOURS = {"waiting": "yellow", "running": "cyan"}
SERVED, COMPLETED = "served", "completed"
"""The outcome as the gateway names it, and the word that every surface shows."""
CELL_LENGTH_MAX = 40

RequestId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of the request, from `forebay queue list` or X-Request-Id.",
        autocompletion=request_ids,
    ),
]


@queue_app.command("list")
def list_requests(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only waiting, running or ended requests; default: waiting and running.",
            autocompletion=one_of(*STATES),
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            help="Only ended requests with this outcome: completed, cancelled, or an error code."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only requests of this user.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Only requests for this model.", autocompletion=model_names)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number to list per state, newest first.")
    ] = 100,
    before: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only requests older than this id; needs --state."),
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """List waiting and running requests, or the last that ended."""
    if outcome is not None:
        if state not in (None, "ended"):
            fail(
                f"--outcome selects ended requests; it does not go with --state {state}.",
                code=USAGE,
            )
        state = "ended"
    _check(state, before)
    client = GatewayClient(url, key_env)
    filters = {"outcome": SERVED if outcome == COMPLETED else outcome, "user": user, "model": model}
    given = {**filters, "limit": limit, "before": before}
    replies = [_asked(client, {"state": one, **given}) for one in ((state,) if state else LIVE)]
    rows = [row for reply in replies for row in reply.value.data]
    if as_json:
        tell_json([row for reply in replies for row in reply.raw["data"]])
    elif rows:
        show(request_table(rows))
    elif state or user or model:
        tell(
            f"There are no such requests. All waiting and running ones: {at_gateway('queue list')}"
        )
    else:
        tell(
            "No request is waiting or running. Ended requests: "
            f"{at_gateway('queue list --state ended')}"
        )
    _say_what_is_missing(replies, filters)


@queue_app.command("show")
def show_request(
    request_id: RequestId, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Show one request: position, estimate, why it waits, or how it ended."""
    from forebay.sdk import NotFound, Place

    client = GatewayClient(url, key_env)
    try:
        with client.or_exit(but=NotFound):
            reply = client.ask("GET", f"/v1/queue/{quote(request_id)}", Place)
    except NotFound as gone:
        with client.or_exit():
            ended = _asked(client, {"id": request_id, "limit": 1})
        if not ended.value.data:
            client.give_up(gone)
        if as_json:
            tell_json(ended.raw["data"][0])
        else:
            show(request_table(ended.value.data))
        return
    if as_json:
        tell_json(reply.raw)
    else:
        show(place_text(reply.value))


@queue_app.command()
def cancel(
    request_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids of requests, from `forebay queue list`.",
            autocompletion=request_ids,
        ),
    ],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Cancel waiting or running requests: clients get 499. Exits with 1 if one has ended."""
    client = GatewayClient(url, key_env)
    for_each(client, "request", request_ids, lambda one: ("DELETE", f"/v1/queue/{quote(one)}"),
             "is cancelled.", as_json)  # fmt: skip


def request_table(rows: Sequence[ListedRequest]) -> Table:
    """Return requests as a table."""
    table = plain_table(
        "Request", "State", "User", "Model", "Priority", "Place", "Waited", "Estimate", "Where"
    )
    for row in rows:
        left = row.estimated_wait_seconds
        table.add_row(
            printable(row.id),
            Text(printable(row.state), COLOURS.get(row.state, "")),
            _cut(row.user),
            _cut(row.model),
            printable(row.priority),
            "" if row.position is None else str(row.position),
            short(row.waited_seconds),
            "" if left is None or left.p50 is None else short(left.p50),
            _where(row),
        )
    return table


def place_text(place: Place) -> Text:
    """Return all about a request that waits or runs, for people."""
    text = Text(f"Request {printable(place.id)} is ")
    text.append(printable(place.state), COLOURS.get(place.state, ""))
    left = place.estimated_wait_seconds
    facts = [
        ("Place", "" if place.position is None else str(place.position)),
        ("Waited", short(place.waited_seconds)),
        ("Estimate", "" if left.p50 is None else f"{short(left.p50)} more"),
        ("Why", printable(place.reason or "")),
    ]
    if (better := place.better_node) is not None:
        gained, left_s = short(better.seconds_gained), short(better.seconds_left)
        facts.append(("Gain", f"ends {gained} sooner there; waits for it {left_s} more at most"))
    for name, value in facts:
        if value:
            text.append(f"\n  {name:<10} {value}")
    for step in place.timeline:
        ago, event = step.get("seconds_ago"), printable(step.get("event", ""))
        if isinstance(ago, int | float):
            text.append(f"\n  {short(ago)} ago: {event}", "dim")
    ending = at_gateway(f"queue cancel {printable(place.id)}")
    return text.append(f"\nEnd it with: {ending}", "dim")


def _where(row: ListedRequest) -> str:
    """Return what there is to say of its state: a node, a reason, an outcome."""
    if row.state == "waiting":
        return printable(row.reason_code or "")
    if row.state == "running":
        return printable(row.node or "")
    on = f" on {row.node}" if row.node else ""
    outcome = COMPLETED if row.outcome == SERVED else row.outcome
    return printable(f"{outcome}, {row.status}{on}")


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= CELL_LENGTH_MAX else f"{text[: CELL_LENGTH_MAX - 3]}..."


def _check(state: str | None, before: str | None) -> None:
    if state is not None and state not in STATES:
        fail(f"--state {state!r}: write one of {', '.join(STATES)}.", code=USAGE)
    if before is not None and state is None:
        fail("--before needs --state or --outcome: each state is a list of its own.", code=USAGE)


def _asked(client: GatewayClient, given: dict[str, Any]) -> GatewayReply[RequestPage]:
    from forebay.sdk import RequestPage

    query = urlencode({name: value for name, value in given.items() if value is not None})
    return client.insist("GET", f"/v1/queue/requests?{query}", RequestPage)


def _say_what_is_missing(
    replies: Sequence[GatewayReply[RequestPage]], filters: dict[str, str | None]
) -> None:
    for name in sorted({name for reply in replies for name in reply.value.incomplete}):
        say(f"Gateway {printable(name)} did not answer: its requests are missing.")
    for page in (reply.value for reply in replies):
        if page.has_more and page.data:
            last = page.data[-1]
            same = "".join(f" --{name} {quoted(text)}" for name, text in filters.items() if text)
            more = f"queue list --state {last.state}{same} --before {last.id}"
            say(f"There are more that are {last.state}: {at_gateway(printable(more))}")
