"""Replays side by side: tables and charts on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.text import Text

from forebay.cli.output.console import say, tell
from forebay.cli.output.tables import plain_table, show
from forebay.cli.output.text import printable, short
from forebay.core import Options
from forebay.load.quantities import seconds, share
from forebay.terminal.text import chart, to_ascii

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.table import Table

    from forebay.load.summary import GroupSummary
    from forebay.planning.document import SimDocument, SimVariant
    from forebay.planning.summary import ReplaySummary

USERS_SHOWN = 10
CHART_ROWS = 4
RANKS = ("p50", "p95", "max")
NODES_SHOWN = 4


def report(made: SimDocument) -> None:
    """Print what came of the replays."""
    source = made.source
    tell(
        f"{printable(source.file)}: {source.kind}, {source.requests:,} requests in "
        f"{short(source.span_s)}"
    )
    columns: dict[str, ReplaySummary] = {}
    if made.recorded is not None:
        columns["recorded"] = made.recorded
    columns |= {printable(variant.name): variant.summary for variant in made.variants}
    show(_nodes(made.variants))
    show(_figures(columns))
    classes = {name for summary in columns.values() for name in summary.by_priority}
    if len(classes) > 1:
        usual = Options().priorities
        ordered = [name for name in usual if name in classes] + sorted(classes.difference(usual))
        show(_waits("Wait by class", columns, lambda s: s.by_priority, ordered))
    users = list(made.variants[0].summary.by_user)[:USERS_SHOWN]
    if len(users) > 1:
        show(_waits("Wait by user", columns, lambda s: s.by_user, users))
    for variant in made.variants:
        _plot(variant)
    _remarks(made)


def _nodes(variants: Sequence[SimVariant]) -> Table:
    table = plain_table("", "Nodes", "Slots", "Users", "Speed", "Load of a model")
    for variant in variants:
        names = ", ".join(
            f"{printable(node.name)}:{node.slots}" for node in variant.nodes[:NODES_SHOWN]
        )
        more = len(variant.nodes) - NODES_SHOWN
        table.add_row(
            printable(variant.name),
            names + (f" and {more} more" if more > 0 else ""),
            f"{sum(node.slots for node in variant.nodes):,}",
            f"x {variant.scale:g}",
            f"x {variant.speed:g}",
            seconds(variant.load_s) if variant.load_s else "-",
        )
    return table


def _figures(columns: Mapping[str, ReplaySummary]) -> Table:
    table = _table("", columns)
    summaries = list(columns.values())

    def row(name: str, of: Callable[[ReplaySummary], str]) -> None:
        table.add_row(name, *map(of, summaries))

    row("Requests", lambda s: f"{s.all.offered:,}")
    row("Completed", lambda s: f"{s.all.ok:,} ({share(s.all.ok_share)})")
    row("Refused", lambda s: f"{s.refused:,}")
    row("Timed out", lambda s: f"{s.timed_out:,}")
    row("Left", lambda s: f"{s.left:,}")
    for code in sorted({code for summary in summaries for code in summary.all.by_code}):
        row(f"  {printable(code)}", lambda s, code=code: f"{s.all.by_code.get(code, 0):,}")  # type: ignore[misc] # mypy infers no lambda with a default
    row("Had to wait", lambda s: "-" if s.queued is None else f"{s.queued:,}")
    for rank in RANKS:
        row(f"Wait {rank}", lambda s, rank=rank: _rank(s.all, rank))  # type: ignore[misc] # as above
    row("Swaps", lambda s: "-" if s.swaps is None else f"{s.swaps:,}")
    row("Utilisation", lambda s: share(s.utilisation))
    row("Fairness", lambda s: "-" if s.fairness_during is None else f"{s.fairness_during:.3f}")
    return table


def _waits(
    title: str,
    columns: Mapping[str, ReplaySummary],
    groups: Callable[[ReplaySummary], Mapping[str, GroupSummary]],
    names: Sequence[str],
) -> Table:
    """Return p50, p95 and the longest wait of each group, and what share of it was completed."""
    table = _table(f"{title}: {' / '.join(RANKS)}", columns)
    for name in names:
        cells = []
        for summary in columns.values():
            found = groups(summary).get(name)
            cells.append("-" if found is None else _group(found))
        table.add_row(printable(name) or "(none)", *cells)
    return table


def _table(title: str, columns: Mapping[str, ReplaySummary]) -> Table:
    table = plain_table(title, *columns)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _group(group: GroupSummary) -> str:
    waits = " / ".join(_rank(group, rank) for rank in RANKS)
    return waits if group.ok == group.offered else f"{waits}, {share(group.ok_share)} completed"


def _rank(group: GroupSummary, rank: str) -> str:
    return "-" if group.wait is None else seconds(float(getattr(group.wait, rank)))


def _plot(variant: SimVariant) -> None:
    """Draw how many waited, and for how long, over the time of the replay."""
    bins = variant.series.requests.bins
    span = short(len(bins) * variant.series.requests.width_s)
    waits = [one.wait_p95 or 0.0 for one in bins]
    plots = (
        (f"waiting, at most {max(variant.series.depth):,}", variant.series.depth),
        (f"wait p95, at most {seconds(max(waits))}", waits),
    )
    for what, values in plots:
        top = max(values)
        if top <= 0:
            continue
        tell(f"\n{printable(variant.name)}: {what}, over {span}")
        for line in chart(values, top, CHART_ROWS):
            show(Text(f"|{_drawn(line)}|"))


def _drawn(line: str) -> str:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    return line if encoding.startswith("utf") else to_ascii(line)


def _remarks(made: SimDocument) -> None:
    """Say what keeps the figures from meaning what they seem to."""
    if made.source.skipped:
        say(f"{made.source.skipped:,} lines are not requests for the queue and were skipped.")
    if made.source.kind == "trace" and not any(fit.points for fit in made.source.fits.values()):
        say("A trace has no times: 20 ms, 0.2 ms a prompt token and 15 ms an output token are "
            "assumed for each request; --speed changes that.")  # fmt: skip
