"""What a run found: tables on the terminal, and files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.text import Text

from forebay.cli.output.console import fail, say, tell
from forebay.cli.output.tables import SafeConsole, plain_table, show
from forebay.cli.output.text import printable
from forebay.load.quantities import BadPlan
from forebay.load.tables import error_table, group_tables, times_table
from forebay.load.words import headline, outcome, warnings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table as RichTable

    from forebay.load.document import Document
    from forebay.load.tables import Table


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
    tell(printable(headline(made)))
    show(_drawn(times_table(made.summary.all)))
    figures = plain_table("", "")
    figures.show_header = False
    for name, value in outcome(made):
        figures.add_row(name, value)
    show(figures)
    for table in group_tables(made):
        show(_drawn(table))
    if made.summary.all.by_code:
        errors = _drawn(error_table(made))
        errors.columns[0].style = "red"
        show(errors)
    for text in warnings(made):
        warn(text)


def warn(text: str) -> None:
    """Say what keeps the figures from meaning what they seem to, so that it is seen."""
    if not sys.stderr.isatty():
        say(printable(text))
        return
    SafeConsole(stderr=True).print(Text(printable(text), "bold yellow"), soft_wrap=True)


def _drawn(table: Table) -> RichTable:
    drawn = plain_table(*map(printable, table.columns))
    for column in drawn.columns[1 : -1 if table.ends_in_prose else None]:
        column.justify = "right"
    for row in table.rows:
        drawn.add_row(*map(printable, row))
    return drawn
