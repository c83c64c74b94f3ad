"""The reports of a run and of two runs side by side: each one HTML file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.charts import (
    SERIES_MAX,
    ChartLine,
    distribution,
    dots_legend,
    over_time,
    scatter,
    user_bars,
)
from forebay.load.html import (
    Markup,
    figure,
    joined,
    legend,
    notes,
    page,
    pairs,
    table,
    tag,
    tiles,
)
from forebay.load.quantities import seconds, share, three_digits
from forebay.load.statistics import percentile
from forebay.load.words import headline, objectives, outcome, settings_rows, warnings

if TYPE_CHECKING:
    from forebay.load.comparison import Comparison, Row
    from forebay.load.document import Document
    from forebay.load.limits import Broken
    from forebay.load.statistics import Spread
    from forebay.load.summary import GroupSummary

TIMES = (
    ("Time to first token", "ttft"),
    ("Total", "total"),
    ("Queue wait", "wait"),
    ("Gap between tokens", "gap"),
    ("Longest gap", "stall"),
)
COMPARED_TIMES = TIMES[:3]
RANKS = (5, 25, 50, 75, 90, 95, 99)
USERS_SHOWN = 50
MARKS = {"better": "\u25b2 better", "worse": "\u25bc worse", "unknown": "-"}
ABOUT = (
    "Two runs of the same server differ by no more than the width of the interval to either side "
    "of B - A, in about 95 of 100 cases (block jackknife over stretches that are long against the "
    "memory of the line). Where it covers 0 there is no clear difference; where fewer than five "
    "such stretches fit into a run, nothing is claimed.",
    "It knows only what varied within each run, not what varies from run to run: before you trust "
    "a small difference, run each twice.",
)


def run_page(made: Document, broken: list[Broken] | None = None) -> str:
    """Return the report of a run."""
    summary = made.summary
    return page(
        f"Load of {made.settings.model}",
        tag("h1", f"Load of {made.settings.model}"),
        tag("p", headline(made)),
        tag("p", f"{made.started}, forebay {made.forebay}", class_="soft"),
        notes((f"--fail-if {one}" for one in broken or ()), "note bad"),
        notes(warnings(made)),
        _tiles(made),
        tag("h2", "How long it took"),
        tag("div", *_distributions(made), class_="plots"),
        tag("h2", "How it went"),
        tag("div", *_time_lines(made), class_="plots"),
        tag("h2", "In numbers"),
        _times(summary.all),
        _groups("Priority", summary.by_priority) if len(summary.by_priority) > 1 else "",
        _groups("User", summary.by_user) if len(summary.by_user) > 1 else "",
        _errors(made) if summary.all.by_code else "",
        pairs("All in all", [list(row) for row in outcome(made)]),
        tag("h2", "What was asked for"),
        pairs("Settings", settings_rows(made.settings)),
        _footer(),
    )


def _tiles(made: Document) -> Markup:
    summary = made.summary
    group = summary.all
    rows = [
        ("Succeeded", share(group.ok_share), f"{group.ok:,} of {group.ok + group.errors:,}"),
        ("Goodput", f"{three_digits(group.goodput)}/s", objectives(made.settings)),
    ]
    for name, field in TIMES[:3]:
        spread: Spread | None = getattr(group, field)
        if spread is not None:
            rows.append((f"{name}, p50", seconds(spread.p50), f"p95 {seconds(spread.p95)}"))
    if len(summary.by_user) > 1 and summary.fairness_during is not None:
        rows.append(("Fairness", f"{summary.fairness_during:.3f}", "while loaded; 1 is fair"))
    return tiles(rows)


# -- plots


def _distributions(made: Document) -> list[Markup]:
    found = []
    for title, field in TIMES[:3]:
        groups: dict[str, list[float]] = {}
        for sample in made.samples.rows:
            value = getattr(sample, f"{field}_s")
            if sample.is_ok and value is not None:
                groups.setdefault(sample.priority, []).append(value)
        order = [name for name in made.summary.by_priority if name in groups][:SERIES_MAX]
        groups = {name: sorted(groups[name]) for name in order}
        if not groups:
            continue
        key = legend([(name, i + 1) for i, name in enumerate(order)])
        rows = [
            [name, *(seconds(percentile(values, p)) for p in RANKS)]
            for name, values in groups.items()
        ]
        found.append(
            figure(
                title,
                "Share of the answers that took no longer, by priority.",
                key if len(order) > 1 else Markup(""),
                distribution(f"cdf-{field}", title, groups),
                ["Priority", *(f"p{p}" for p in RANKS)],
                rows,
            )
        )
    if len(made.summary.by_user) > 1:
        found.append(_users(made))
    return found


def _users(made: Document) -> Markup:
    groups = made.summary.by_user
    keys = (("offered", "asked for"), ("served", "served"), ("fair", "fair share"))
    key = tag(
        "ul",
        *(tag("li", tag("span", class_=f"key key-{name}"), text) for name, text in keys),
        class_="legend",
    )
    title = "Users"
    rows = [[user, f"{group.offered:,}", f"{group.ok:,}"] for user, group in groups.items()]
    about = "Requests of each user, and what a fair server of this capacity would have served."
    return figure(
        title, about, key, user_bars("users", title, groups), ["User", "Asked for", "Served"],
        rows[:USERS_SHOWN],
    )  # fmt: skip


def _time_lines(made: Document) -> list[Markup]:
    bins, width_s = made.series.bins, made.series.width_s
    rates = [
        ChartLine("due", [one.arrivals / width_s for one in bins], 1),
        ChartLine("answered", [one.completions / width_s for one in bins], 3),
        ChartLine("failed", [one.errors / width_s for one in bins], 2),
    ]
    flight = [ChartLine("under way", [float(one.in_flight) for one in bins], 1, is_area=True)]
    waits = [
        ChartLine("queue wait p50", [one.wait_p50 for one in bins], 3),
        ChartLine("queue wait p95", [one.wait_p95 for one in bins], 5),
    ]
    plots = [
        ("Requests a second", "Due, answered and failed, warm-up included.", rates, "count"),
        ("Under way", "Sent and not yet answered.", flight, "count"),
        ("Queue wait, over time", "By when the request was due; as the server tells.", waits, "s"),
    ]
    drawn = [
        _time_line(f"time-{i}", title, about, lines, width_s, unit)
        for i, (title, about, lines, unit) in enumerate(plots)
        if any(value is not None for line in lines for value in line.values)
    ]
    return [*drawn[:2], _each(made), *drawn[2:]]


def _each(made: Document) -> Markup:
    """Return every request as a point: what percentiles hide."""
    field, title = ("ttft_s", "First token of each request")
    if made.summary.all.ttft is None:
        field, title = ("total_s", "Total time of each request")
    order = list(made.summary.by_priority)[:SERIES_MAX]
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in order}
    for sample in made.samples.rows:
        value = getattr(sample, field)
        if sample.is_ok and value is not None and sample.priority in points:
            points[sample.priority].append((sample.at_s, value))
    failed = [sample.at_s for sample in made.samples.rows if sample.is_error]
    rows = [
        [name, f"{len(found):,}", seconds(max((value for _, value in found), default=None))]
        for name, found in points.items()
    ]
    names = [(name, i + 1) for i, name in enumerate(order)]
    return figure(
        title,
        "By when it was due; failures are the ticks below.",
        dots_legend(names) if len(order) > 1 else Markup(""),
        scatter("each", title, points, failed, made.summary.span_s + made.settings.warmup_s),
        ["Priority", "Answers", "Slowest"],
        rows,
    )


def _time_line(
    name: str, title: str, about: str, lines: list[ChartLine], width_s: float, unit: str
) -> Markup:
    rows = []
    for i in range(len(lines[0].values)):
        values = [line.values[i] for line in lines]
        if any(values):
            write = seconds if unit == "s" else lambda v: "-" if v is None else three_digits(v)
            rows.append([seconds(i * width_s), *(write(value) for value in values)])
    key = legend([(line.name, line.colour) for line in lines])
    return figure(
        title,
        about,
        key if len(lines) > 1 else Markup(""),
        over_time(name, title, lines, width_s, unit),
        ["From", *(line.name for line in lines)],
        rows,
    )


# -- tables


def _times(group: GroupSummary) -> Markup:
    rows = []
    for name, field in TIMES:
        found: Spread | None = getattr(group, field)
        values = (
            (found.p50, found.p90, found.p95, found.p99, found.mean, found.max)
            if found
            else (None,) * 6
        )
        rows.append([name, *map(seconds, values)])
    return table("Times of the answers", ["Time", "p50", "p90", "p95", "p99", "Mean", "Max"], rows)


def _groups(kind: str, groups: dict[str, GroupSummary]) -> Markup:
    rows = [
        [
            name,
            f"{group.offered:,}",
            f"{group.ok:,}",
            f"{group.errors:,}",
            *_pair(group.ttft),
            *_pair(group.total),
            *_pair(group.wait),
            f"{three_digits(group.goodput)}/s",
        ]
        for name, group in groups.items()
    ]
    head = [kind, "Asked for", "Served", "Failed", "First p50", "p95", "Total p50", "p95",
            "Wait p50", "p95", "Goodput"]  # fmt: skip
    more = f" (the first {USERS_SHOWN} of {len(rows):,})" if len(rows) > USERS_SHOWN else ""
    return table(f"By {kind.lower()}{more}", head, rows[:USERS_SHOWN])


def _pair(spread: Spread | None) -> tuple[str, str]:
    return (seconds(spread.p50), seconds(spread.p95)) if spread else ("-", "-")


def _errors(made: Document) -> Markup:
    summary = made.summary
    names = list(summary.by_priority) if len(summary.by_priority) > 1 else []
    ended = summary.all.ok + summary.all.errors
    rows = [
        [
            code,
            f"{count:,}",
            share(count / ended),
            *(f"{summary.by_priority[name].by_code.get(code, 0):,}" for name in names),
            made.messages.get(code, ""),
        ]
        for code, count in summary.all.by_code.items()
    ]
    made_table = table("Errors", ["Code", "Count", "Share", *names, "The server said"], rows)
    return tag("div", made_table, class_="wide")


def _footer() -> Markup:
    texts = (
        "Open loop: requests were sent when they were due, whatever had become of the others, "
        "and every time counts from when the request was due, not from when it was sent.",
        "Percentiles are values that were measured (nearest rank), of successful answers only. "
        "Fairness is Jain's index over what each user got of their max-min fair share.",
    )
    return tag("footer", joined(tag("p", text) for text in texts))


def compare_page(a: Document, b: Document, found: Comparison) -> str:
    """Return the report of a comparison."""
    different = [f"Not comparable: {text}." for text in found.differences]
    return page(
        "Two runs side by side",
        tag("h1", "Two runs side by side"),
        tag("p", tag("strong", "A: "), headline(a), tag("span", f" ({a.started})", class_="soft")),
        tag("p", tag("strong", "B: "), headline(b), tag("span", f" ({b.started})", class_="soft")),
        notes(different, "note bad"),
        notes(found.warnings),
        tag("h2", "B against A"),
        _table(found),
        tag("h2", "How long it took"),
        tag("div", *_compared_distributions(a, b), class_="plots"),
        tag("footer", joined(tag("p", text) for text in ABOUT)),
    )


def value_text(row: Row, value: float | None) -> str:
    """Return one value of a row."""
    if value is None:
        return "-"
    if row.unit == "s":
        return seconds(value)
    if row.unit == "share":
        return share(value)
    if row.unit == "index":
        return f"{value:.3f}"
    return f"{three_digits(value)}/s" if row.unit == "/s" else f"{value:,.0f}"


def interval_text(row: Row) -> str:
    """Return the interval of the difference.

    >>> from forebay.load.comparison import Row
    >>> interval_text(Row("total", "s", 1.0, 2.0, "worse", 0.5, 1.5))
    '+500 ms to +1.50 s'
    """
    if row.low is None or row.high is None:
        return "-"
    return f"{_signed(row, row.low)} to {_signed(row, row.high)}"


def _signed(row: Row, value: float) -> str:
    if row.unit == "share":
        return f"{value * 100:+.1f} points"
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return sign + (seconds(abs(value)) if row.unit == "s" else three_digits(abs(value)))


def ratio_text(row: Row) -> str:
    """Return how many times b is of a."""
    return "-" if row.ratio is None else f"{three_digits(row.ratio)}x"


def _table(found: Comparison) -> Markup:
    head = ["Figure", "A", "B", "B / A", "Difference, 95 %", "Verdict"]
    rows = []
    for row in found.rows:
        style = row.verdict if row.verdict in ("better", "worse") else None
        cells = [value_text(row, row.a), value_text(row, row.b), ratio_text(row)]
        cells.append(interval_text(row))
        rows.append(
            tag(
                "tr",
                tag("th", row.name, scope="row"),
                *(tag("td", cell) for cell in cells),
                tag("td", MARKS.get(row.verdict, row.verdict), class_=style),
            )
        )
    made = tag(
        "table",
        tag("caption", "Figures of both runs"),
        tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))),
        tag("tbody", *rows),
    )
    return tag("div", made, class_="scroll", tabindex="0", role="group", aria_label="Figures")


def _compared_distributions(a: Document, b: Document) -> list[Markup]:
    found = []
    for title, field in COMPARED_TIMES:
        groups = {"A": _values(a, field), "B": _values(b, field)}
        if not all(groups.values()):
            continue
        rows = [
            [name, *(seconds(percentile(values, p)) for p in RANKS)]
            for name, values in groups.items()
        ]
        found.append(
            figure(
                title,
                "Share of the answers that took no longer.",
                legend([("A", 1), ("B", 2)]),
                distribution(f"cdf-{field}", title, groups),
                ["Run", *(f"p{p}" for p in RANKS)],
                rows,
            )
        )
    return found


def _values(document: Document, field: str) -> list[float]:
    return sorted(
        value
        for sample in document.samples.rows
        if sample.is_ok and (value := getattr(sample, f"{field}_s")) is not None
    )
