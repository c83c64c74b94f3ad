"""`forebay sessions`: the conversations that a running gateway holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from forebay.cli.each import for_each
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.output.console import say, tell, tell_json
from forebay.cli.output.tables import plain_table, show
from forebay.cli.output.text import printable, short
from forebay.cli.verbs import DefaultVerbGroup
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from forebay.sdk import SessionLine, SessionState

sessions_app = typer.Typer(
    name="sessions",
    cls=DefaultVerbGroup,
    help="List, show and delete the sessions of a gateway.",
    epilog="forebay sessions is short for forebay sessions list. Continue one with: "
    "forebay chat --session ID",
)


@sessions_app.command("list")
def list_sessions(
    *,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number to list, newest first.")
    ] = 20,
    before: Annotated[
        str | None,
        typer.Option(metavar="NEXT", help="Cursor of the next page, from the output of --json."),
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Show sessions, the newest first: your key's, for an admin everybody's."""
    from forebay.sdk import SessionList

    asked = {"limit": str(limit)} | ({} if before is None else {"before": before})
    reply = GatewayClient(url, key_env).insist("GET", f"/session?{urlencode(asked)}", SessionList)
    found = reply.value
    if as_json:
        tell_json(reply.raw)
    elif found.data:
        show(session_table(found.data, SystemClock().utc().timestamp()))
    else:
        tell(f"There are no sessions. Start one with: {at_gateway('chat')}")
    if found.incomplete:
        names = ", ".join(printable(name) for name in found.incomplete)
        say(f"forebay: not all are shown: no answer from {names}.")


@sessions_app.command("show")
def show_session(
    session_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the session, from `forebay sessions list`.")
    ],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Show the state of one session."""
    from forebay.sdk import SessionState

    reply = GatewayClient(url, key_env).insist("GET", _path(session_id), SessionState)
    if as_json:
        tell_json(reply.raw)
    else:
        show(session_text(reply.value, SystemClock().utc().timestamp()))


@sessions_app.command("delete")
def delete_sessions(
    session_ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids of sessions, from `forebay sessions list`."),
    ],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Delete sessions with all their messages. Exits with 1 if one could not be."""
    client = GatewayClient(url, key_env)
    for_each(client, "session", session_ids, lambda one: ("DELETE", _path(one)), "is deleted.",
             as_json)  # fmt: skip


def session_table(sessions: Sequence[SessionLine], now: float) -> Table:
    """Return sessions as a table; `now` is in seconds since 1970."""
    owned = any(session.owner for session in sessions)
    table = plain_table("Session", "Model", "Status", "Pending", "Turns", "Age", "Used",
                        *(["Owner"] if owned else []))  # fmt: skip
    for one in sessions:
        table.add_row(
            printable(one.session_id),
            printable(one.model),
            printable(one.status),
            str(one.pending),
            str(one.turns),
            _since(one.created_at, now),
            f"{_since(one.used_at, now)} ago",
            *([printable(one.owner or "")] if owned else []),
        )
    return table


def session_text(session: SessionState, now: float) -> Text:
    """Return how a session stands, for people."""
    from rich.text import Text

    text = Text(f"Session {printable(session.session_id)} is {printable(session.state)}")
    facts = {
        "Model": session.model,
        "System": session.system or "",
        "Pending": str(session.pending_count),
        "Running": session.active_prompt_id or "",
        "Turns": str(session.turns),
        "Created": f"{_since(session.created_at, now)} ago",
    }
    for name, value in facts.items():
        if value:
            text.append(f"\n  {name:<8} {printable(value)}")
    called = at_gateway(f"chat --session {printable(session.session_id)}")
    text.append(f"\nContinue it with: {called}", "dim")
    return text


def _path(session_id: str) -> str:
    return f"/session/{quote(session_id, safe='')}"


def _since(then: float | None, now: float) -> str:
    return "" if then is None else short(max(0.0, now - then))
