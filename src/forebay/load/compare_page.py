"""The report of two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.charts import distribution
from forebay.load.markup import Markup, joined, tag
from forebay.load.page_parts import figure, legend, notes, page
from forebay.load.percentiles import percentile
from forebay.load.quantities import seconds, share, three_digits
from forebay.load.words import headline

if TYPE_CHECKING:
    from forebay.load.comparison import Comparison, Row
    from forebay.load.document import Document

TIMES = (("Time to first token", "ttft"), ("Total", "total"), ("Queue wait", "wait"))
RANKS = (5, 25, 50, 75, 90, 95, 99)
MARKS = {"better": "\u25b2 better", "worse": "\u25bc worse", "unknown": "-"}


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
        tag("div", *_distributions(a, b), class_="plots"),
        tag("footer", joined(tag("p", text) for text in ABOUT)),
    )


ABOUT = (
    "Two runs of the same server differ by no more than the width of the interval to either side "
    "of B - A, in about 95 of 100 cases (block jackknife over stretches that are long against the "
    "memory of the line). Where it covers 0 there is no clear difference; where fewer than five "
    "such stretches fit into a run, nothing is claimed.",
    "It knows only what varied within each run, not what varies from run to run: before you trust "
    "a small difference, run each twice.",
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


def _distributions(a: Document, b: Document) -> list[Markup]:
    found = []
    for title, field in TIMES:
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
