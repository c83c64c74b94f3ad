"""`forebay bench compare`: two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from forebay.cli.bench_run import check_targets, write
from forebay.cli.bench_tables import warn
from forebay.cli.console import fail, say, tell
from forebay.cli.exits import USAGE
from forebay.cli.gateway_client import printable
from forebay.cli.tables import plain_table, show
from forebay.load.compare_page import MARKS, compare_page, interval_text, ratio_text, value_text
from forebay.load.comparison import compare
from forebay.load.document import load
from forebay.load.quantities import BadPlan
from forebay.load.words import headline

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from forebay.load.comparison import Comparison
    from forebay.load.document import Document

VERSION = 1
COLOURS = {"better": "green", "worse": "red"}


def start(a_path: Path, b_path: Path, html: Path | None, as_json: bool) -> None:
    """Compare two runs and report."""
    try:
        a, b = load(a_path), load(b_path)
        check_targets({"--html": html})
    except BadPlan as bad:
        fail(str(bad), code=USAGE)
    found = compare(a, b)
    if html is not None:
        write(html, compare_page(a, b, found))
    if as_json:
        tell(_json(a_path, b_path, found))
    else:
        _tell(a, b, found)
        if html is not None:
            tell(f"Report: {html}")


def _tell(a: Document, b: Document, found: Comparison) -> None:
    tell(f"A: {printable(headline(a))}")
    tell(f"B: {printable(headline(b))}")
    for text in found.differences:
        warn(f"NOT COMPARABLE: {text}.")
    for text in found.warnings:
        warn(text)
    show(_table(found))
    say("The difference is B - A; where it covers 0, equal servers may well differ by as much.")


def _table(found: Comparison) -> Table:
    table = plain_table("", "A", "B", "B / A", "Difference, 95 %", "Verdict")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in found.rows:
        table.add_row(
            row.name,
            value_text(row, row.a),
            value_text(row, row.b),
            ratio_text(row),
            interval_text(row),
            Text(MARKS.get(row.verdict, row.verdict), COLOURS.get(row.verdict, "")),
        )
    return table


def _json(a_path: Path, b_path: Path, found: Comparison) -> str:
    rows = [{**msgspec.structs.asdict(row), "ratio": row.ratio} for row in found.rows]
    made = {
        "kind": "forebay.bench.compare",
        "version": VERSION,
        "a": str(a_path),
        "b": str(b_path),
        "comparable": not found.differences,
        "differences": found.differences,
        "warnings": found.warnings,
        "rows": rows,
    }
    return msgspec.json.format(msgspec.json.encode(made), indent=1).decode()
