"""Tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.cli.gateway_client import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH_IN_A_PIPE = 200
"""Nobody looks at a pipe, so nothing needs to be folded."""
COLOURS = {"online": "green", "loading": "yellow", "draining": "yellow", "offline": "red"}
MODELS_SHOWN = 3


def plain_table(*columns: str) -> Table:
    """Return an empty table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def show(what: RenderableType) -> None:
    """Print a table, or a text, to standard output."""
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=WIDTH_IN_A_PIPE)
    console.print(what, soft_wrap=isinstance(what, Text))


def node_table(nodes: list[dict[str, Any]]) -> Table:
    """Return the nodes as a table."""
    table = plain_table("Node", "State", "Kind", "Running", "Models", "URL", "Last error")
    for node in nodes:
        state = printable(node["state"])
        table.add_row(
            printable(node["name"]),
            Text(state, COLOURS.get(state, "")),
            printable(node["kind"] or "?"),
            f"{node['in_flight']} of {node['slots']}",
            _models(node["models"]),
            printable(node["url"]),
            printable(node["last_error"] or ""),
        )
    return table


def _models(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:MODELS_SHOWN])
    more = len(names) - MODELS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
