"""Tables on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from forebay.cli.output.text import harmless, printable, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import ConsoleOptions, RenderableType

    from forebay.api.nodes import Node

WIDTH_IN_A_PIPE = 200
"""Nobody looks at a pipe, so nothing needs to be folded."""
COLOURS = {"online": "green", "loading": "yellow", "draining": "yellow", "offline": "red"}
MODELS_SHOWN = 3


def plain_table(*columns: str) -> Table:
    """Return an empty table."""
    # In a pipe there are only columns: nothing to be cut out again by grep or awk.
    table = Table(box=SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def console_for_output() -> Console:
    """Return what prints to standard output, wide where that is a pipe."""
    console = SafeConsole(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_PIPE
    return console


def show(what: RenderableType) -> None:
    """Print a table, or a text, to standard output."""
    console = console_for_output()
    if isinstance(what, Table) and not console.is_terminal:
        what = _as_columns(what)
    elif isinstance(what, Table):
        fits = console.measure(what, options=console.options.update(width=WIDTH_IN_A_PIPE))
        if fits.maximum > console.width:
            what = _as_records(what)
    console.print(what, soft_wrap=isinstance(what, Text))


def _as_columns(table: Table) -> Text:
    """Return a table with exactly one line for each row, however long, as pipes want it."""
    names = [str(column.header) for column in table.columns]
    rows = [names, *zip(*(map(_plain, column.cells) for column in table.columns), strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return Text("\n".join(lines))


def _plain(cell: RenderableType) -> str:
    return " ".join((cell.plain if isinstance(cell, Text) else str(cell)).split("\n"))


def _as_records(table: Table) -> Text:
    """Return a table too wide for the terminal row by row, a line for each value.

    In columns too narrow for them, words would be cut into pieces.
    """
    names = [str(column.header) for column in table.columns]
    rows = zip(*(list(column.cells) for column in table.columns), strict=True)
    width = max(len(name) for name in names)
    records = []
    for row in rows:
        text = Text()
        for name, cell in zip(names, row, strict=True):
            value = cell if isinstance(cell, Text) else Text(str(cell))
            if value.plain:
                text.append(f"{name:<{width}}  ", "bold").append_text(value).append("\n")
        records.append(text)
    return Text("\n").join(records)


def node_table(nodes: Sequence[Node]) -> Table:
    """Return the nodes as a table."""
    table = plain_table("Node", "State", "Kind", "Running", "Speed", "Models", "URL", "Last error")
    for node in nodes:
        state = printable(node.state)
        table.add_row(
            printable(node.name),
            Text(state, COLOURS.get(state, "")),
            printable(node.kind or "?") + (", guarded" if node.guarded else ""),
            f"{node.in_flight} of {node.slots}" + _room(node.kv_free_tokens),
            _speed(node),
            _models(node.models),
            printable(node.url),
            printable(node.last_error or ""),
        )
    return table


def _room(tokens: int | None) -> str:
    return "" if tokens is None else f", {tokens:,} tokens free"


def _speed(node: Node) -> str:
    if node.speed is None:
        return ""
    return f"{node.speed:.2f} x usual, {short(node.speed_measured_seconds_ago or 0.0)} ago"


def _models(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:MODELS_SHOWN])
    more = len(names) - MODELS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


class SafeConsole(Console):
    """Cleans every text that is drawn; a closed pipe is left to the command."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the pieces of what is drawn; those that steer the terminal are rich's own."""
        for piece in super().render(renderable, options):
            if piece.control:
                yield piece
            else:
                yield Segment(harmless(piece.text), piece.style)

    def on_broken_pipe(self) -> None:
        """Let the command end as it does without colours."""
        raise BrokenPipeError
