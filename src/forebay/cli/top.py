"""`forebay top`: the live view of a gateway in a terminal, or one look at it in a pipe."""

from __future__ import annotations

import asyncio
import locale
import random
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from forebay.cli.exits import FAILED, INTERRUPTED, NOT_ALLOWED, NOT_REACHABLE
from forebay.cli.gateway import AsJson, GatewayUrl, KeyEnv, where_and_key
from forebay.cli.output.console import fail, tell
from forebay.cli.output.text import printable
from forebay.clock import SystemClock
from forebay.settings.environment import current_environment

if TYPE_CHECKING:
    from forebay.terminal.feed import Feed, GaveUp

EPILOG = (
    "Keys: q leaves, ? explains the others. d drains the chosen node and r resumes it, for admins. "
    "It reconnects when the gateway is restarted."
)
NO_SCREEN = ("dumb", "unknown", "")
"""Values of TERM for which nothing can be drawn in place."""
CELLS_IN_A_PIPE = 80
"""Unless COLUMNS says otherwise."""
PLAIN_FONT = ("linux",)
"""The kernel's own console: its font has few signs."""


def top(
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    once: Annotated[
        bool,
        typer.Option("--once", help="Print one frame as text and exit; the default in a pipe."),
    ] = False,
    as_json: AsJson = False,
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Use ASCII characters only; the default without UTF-8.")
    ] = False,
) -> None:
    """Watch a running gateway live: the queue, the nodes, models and jobs.

    Exits with 0 after q, 1 when the gateway said no, 3 when none can be reached, 4 when
    it wants a key.
    """
    address, key = where_and_key(url, key_env)
    from forebay.terminal.feed import Feed, GaveUp  # HTTP is of no use to other options

    feed = Feed(address, key, random.Random())
    term = current_environment().get("TERM", "")
    is_plain = ascii_only or term in PLAIN_FONT or not _speaks_utf8()
    is_live = sys.stdout.isatty() and sys.stdin.isatty() and term not in NO_SCREEN
    try:
        if as_json:
            tell(msgspec.json.format(asyncio.run(_snapshot(feed)), indent=2))
        elif once or not is_live:
            tell(asyncio.run(_still(feed, is_plain)))
        else:
            raise typer.Exit(asyncio.run(_watch(feed, is_plain)))
    except GaveUp as problem:
        fail(printable(problem), code=_status_of(problem))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _status_of(problem: GaveUp) -> int:
    if problem.is_away:
        return NOT_REACHABLE
    return NOT_ALLOWED if problem.is_about_the_key else FAILED


def _speaks_utf8() -> bool:
    """Say whether both the locale and standard output can write more than ASCII.

    The locale's own word counts, not Python's, which takes the C locale for UTF-8.
    """
    names = (locale.getencoding(), sys.stdout.encoding or "")
    return all(name.lower().replace("-", "") == "utf8" for name in names)


async def _snapshot(feed: Feed) -> str:
    try:
        return (await feed.first())[2]
    finally:
        await feed.close()


async def _still(feed: Feed, is_plain: bool) -> str:
    """Return one frame as text; raises GaveUp."""
    from forebay.terminal.panels import once
    from forebay.terminal.text import to_ascii
    from forebay.terminal.view import TopView

    view = TopView(feed.url)
    try:
        hello, snapshot, _ = await feed.first()
        view.take_hello(hello)
        view.take_snapshot(snapshot)
        await view.fetch_requests(feed)
    finally:
        await feed.close()
    text = once(view, shutil.get_terminal_size((CELLS_IN_A_PIPE, 24)).columns)
    return to_ascii(text) if is_plain else text


async def _watch(feed: Feed, is_plain: bool) -> int:
    """Show the live view until it is left, and return the exit status; raises GaveUp."""
    from forebay.terminal.app import TopApp
    from forebay.terminal.view import TopView

    app = TopApp(feed, TopView(feed.url), SystemClock(), is_ascii=is_plain)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave the terminal as it was
        loop.add_signal_handler(number, app.exit, 128 + number)
    try:
        status = await app.run_async()
    finally:
        await feed.close()
    if app.problem is not None:
        raise app.problem
    return app.return_code or 0 if status is None else status
