"""What a run found as tables of text, for the terminal and for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.quantities import seconds, share, three_digits

if TYPE_CHECKING:
    from forebay.load.document import Document
    from forebay.load.statistics import Spread
    from forebay.load.summary import GroupSummary

TIMES = (
    ("Time to first token", "ttft"),
    ("Total", "total"),
    ("Queue wait", "wait"),
    ("Gap between tokens", "gap"),
    ("Longest gap", "stall"),
)
ROWS_MAX = 50


class Table(Struct, frozen=True):
    """A table whose first column names the rows; the other columns are figures."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    ends_in_prose: bool = False
    """The last column is text to be read, not a figure."""
    shares: list[tuple[float, float, float]] | None = None
    """A bar for each row: what was offered and served, and the fair share."""


def times_table(group: GroupSummary) -> Table:
    """Return how the times of the answers are spread."""
    rows = []
    for name, field in TIMES:
        found: Spread | None = getattr(group, field)
        values = (
            (found.p50, found.p90, found.p95, found.p99, found.mean, found.max)
            if found
            else (None,) * 6
        )
        rows.append([name, *map(seconds, values)])
    return Table("Times of the answers", ["Time", "p50", "p90", "p95", "p99", "Mean", "Max"], rows)


def group_tables(made: Document) -> list[Table]:
    """Return the figures by priority and by user, where there are several."""
    kinds = (("Priority", made.summary.by_priority), ("User", made.summary.by_user))
    return [_groups(kind, groups, made) for kind, groups in kinds if len(groups) > 1]


def _groups(kind: str, groups: dict[str, GroupSummary], made: Document) -> Table:
    """Return a row for each group; times that the run does not have get no column."""
    times = [
        (name, field)
        for name, field in (("First", "ttft"), ("Total", "total"), ("Wait", "wait"))
        if field == "total" or getattr(made.summary.all, field) is not None
    ]
    rows = []
    for name, group in list(groups.items())[:ROWS_MAX]:
        row = [name, f"{group.offered:,}", f"{group.ok:,}", share(group.ok_share)]
        for _, field in times:
            found: Spread | None = getattr(group, field)
            row += [seconds(found.p50), seconds(found.p95)] if found else ["-", "-"]
        rows.append([*row, f"{three_digits(group.goodput)}/s"])
    heads = [head for name, _ in times for head in (f"{name} p50", "p95")]
    if len(groups) > ROWS_MAX:
        rows.append([f"and {len(groups) - ROWS_MAX:,} more (--json has them)"])
    return Table(
        f"By {kind.lower()}", [kind, "Offered", "Completed", "Share", *heads, "Goodput"], rows
    )


def error_table(made: Document) -> Table:
    """Return how many requests failed, by code."""
    summary = made.summary
    groups = summary.by_priority if len(summary.by_priority) > 1 else {}
    ended = summary.all.ok + summary.all.errors
    rows = [
        [
            code,
            f"{count:,}",
            share(count / ended),
            *(f"{group.by_code.get(code, 0):,}" for group in groups.values()),
            made.messages.get(code, ""),
        ]
        for code, count in summary.all.by_code.items()
    ]
    columns = ["Error", "Count", "Share", *groups, "The server said"]
    return Table("Errors", columns, rows, ends_in_prose=True)
