"""What a run found: tables on the terminal, and files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.text import Text

from forebay.cli.output.console import fail, say, tell
from forebay.cli.output.tables import SafeConsole, plain_table, show
from forebay.cli.output.text import printable
from forebay.load.quantities import BadPlan, seconds, share, three_digits
from forebay.load.words import headline, outcome, warnings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

    from forebay.load.document import Document
    from forebay.load.statistics import Spread
    from forebay.load.summary import GroupSummary, RunSummary

USERS_SHOWN = 20
TIMES = (
    ("Time to first token", "ttft"),
    ("Total", "total"),
    ("Queue wait", "wait"),
    ("Gap between tokens", "gap"),
    ("Longest gap", "stall"),
)


def check_outputs(paths: Mapping[str, Path | None]) -> None:
    """See that results can be written before time is spent on them; raises BadPlan."""
    for option, path in paths.items():
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise BadPlan(
                f"{option} {path} cannot be written: its folder must exist, and it must not be "
                "a folder."
            )


def write(path: Path, text: str) -> None:
    """Write a result, or end the command with what is wrong."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}.")


def report(made: Document) -> None:
    """Print what a run found."""
    summary = made.summary
    tell(printable(headline(made)))
    show(_times(summary.all))
    show(_figures(made))
    if len(summary.by_priority) > 1:
        show(_groups("Priority", summary.by_priority, summary))
    if len(summary.by_user) > 1:
        show(_groups("User", summary.by_user, summary))
    if summary.all.by_code:
        show(_errors(made))
    for text in warnings(made):
        warn(text)


def warn(text: str) -> None:
    """Say what keeps the figures from meaning what they seem to, so that it is seen."""
    if not sys.stderr.isatty():
        say(printable(text))
        return
    SafeConsole(stderr=True).print(Text(printable(text), "bold yellow"), soft_wrap=True)


def _times(group: GroupSummary) -> Table:
    table = plain_table("", "p50", "p90", "p95", "p99", "Mean", "Max")
    for column in table.columns[1:]:
        column.justify = "right"
    for label, name in TIMES:
        found: Spread | None = getattr(group, name)
        if found is None:
            table.add_row(label, *["-"] * 6)
            continue
        values = (found.p50, found.p90, found.p95, found.p99, found.mean, found.max)
        table.add_row(label, *map(seconds, values))
    return table


def _figures(made: Document) -> Table:
    table = plain_table("", "")
    table.show_header = False
    for name, value in outcome(made):
        table.add_row(name, value)
    return table


def _groups(title: str, groups: dict[str, GroupSummary], summary: RunSummary) -> Table:
    has_wait = summary.all.wait is not None
    has_first = summary.all.ttft is not None
    columns = [title, "Offered", "Completed", "Share"]
    columns += ["First p50", "p95"] if has_first else []
    columns += ["Total p50", "p95"]
    columns += ["Wait p50", "p95"] if has_wait else []
    table = plain_table(*columns, "Goodput")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, group in list(groups.items())[:USERS_SHOWN]:
        table.add_row(
            printable(name),
            f"{group.offered:,}",
            f"{group.ok:,}",
            share(group.ok_share),
            *(_pair(group.ttft) if has_first else ()),
            *_pair(group.total),
            *(_pair(group.wait) if has_wait else ()),
            f"{three_digits(group.goodput)}/s",
        )
    if len(groups) > USERS_SHOWN:
        table.add_row(f"and {len(groups) - USERS_SHOWN:,} more (--json has them)")
    return table


def _pair(spread: Spread | None) -> tuple[str, str]:
    return (seconds(spread.p50), seconds(spread.p95)) if spread else ("-", "-")


def _errors(made: Document) -> Table:
    summary = made.summary
    groups = summary.by_priority if len(summary.by_priority) > 1 else {}
    table = plain_table("Error", "Count", "Share", *map(printable, groups), "The server said")
    for column in table.columns[1:-1]:
        column.justify = "right"
    ended = summary.all.ok + summary.all.errors
    for code, count in summary.all.by_code.items():
        table.add_row(
            Text(printable(code), "red"),
            f"{count:,}",
            share(count / ended),
            *(f"{group.by_code.get(code, 0):,}" for group in groups.values()),
            printable(made.messages.get(code, "")),
        )
    return table
