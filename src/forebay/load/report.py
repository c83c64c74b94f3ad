"""What a report shows: its words, its figures and its tables, as data for the page.

The page draws what it is given and knows nothing of loads, so that whatever has figures over time
or times to compare can be a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from forebay.load.quantities import seconds, share, three_digits
from forebay.load.statistics import fair_shares, percentile
from forebay.load.tables import TIMES, Table, error_table, group_tables, times_table
from forebay.load.words import headline, objectives, outcome, settings_rows, warnings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.load.document import Document
    from forebay.load.limits import Broken
    from forebay.load.statistics import Spread

CURVES_MAX = 6
"""As many as there are looks that can be told apart."""
POINTS_MAX = 1500
"""Of each group, evenly thinned: enough to see the shape, and the file stays small."""
USERS_DRAWN = 16
NOTES = (
    "Open loop: requests were sent when they were due, regardless of the others, "
    "and every time counts from when the request was due, not from when it was sent.",
    "Percentiles are values that were measured (nearest rank), of successful answers only. "
    "Fairness is Jain's index over what each user got of their max-min fair share.",
)


class Curve(Struct, frozen=True):
    """What belongs together in a figure."""

    name: str
    look: str
    """Classes of the style: the colour, the dashes."""
    values: list[float | None] = []
    """Of lines: one for each step; None leaves a gap."""
    points: list[tuple[float, float]] = []
    """Of dots: time and value."""


class Figure(Struct, frozen=True, kw_only=True):
    """Curves with their axes."""

    title: str
    about: str
    kind: Literal["ranks", "lines", "dots"]
    """`ranks`: the values are percentiles, from the 0th to the 100th."""
    unit: Literal["duration", "count"]
    span_s: float = 0.0
    """Of lines and dots: the time that is drawn, from 0."""
    curves: list[Curve]


class Section(Struct, frozen=True):
    """Figures, and tables below them."""

    title: str
    figures: list[Figure] = []
    tables: list[Table] = []


class Report(Struct, frozen=True, kw_only=True):
    """All that a page shows, from the top."""

    title: str
    lines: list[str]
    problems: list[str] = []
    """What was asked for and did not hold."""
    warnings: list[str] = []
    tiles: list[tuple[str, str, str]] = []
    """The first figures to look at: name, value, and a word about it."""
    sections: list[Section]
    notes: tuple[str, ...] = ()


def run_report(made: Document, broken: list[Broken] | None = None) -> Report:
    """Return the report of a run."""
    errors = [error_table(made)] if made.summary.all.by_code else []
    return Report(
        title=f"Load of {made.settings.model}",
        lines=[headline(made), f"{made.started}, forebay {made.forebay}"],
        problems=[f"--fail-if {one}" for one in broken or ()],
        warnings=warnings(made),
        tiles=_tiles(made),
        sections=[
            Section("How long it took", _spreads(made), _users(made)),
            Section("How it went", _over_time(made)),
            Section("In numbers", [], [
                times_table(made.summary.all),
                *group_tables(made),
                *errors,
                _pairs("All in all", outcome(made)),
            ]),
            Section("What was asked for", [], [_pairs("Settings", settings_rows(made.settings))]),
        ],
        notes=NOTES,
    )  # fmt: skip


def _tiles(made: Document) -> list[tuple[str, str, str]]:
    summary = made.summary
    group = summary.all
    tiles = [
        ("Completed", share(group.ok_share), f"{group.ok:,} of {group.ok + group.errors:,}"),
        ("Goodput", f"{three_digits(group.goodput)}/s", objectives(made.settings)),
    ]
    for name, field in TIMES[:3]:
        spread: Spread | None = getattr(group, field)
        if spread is not None:
            tiles.append((f"{name}, p50", seconds(spread.p50), f"p95 {seconds(spread.p95)}"))
    if len(summary.by_user) > 1 and summary.fairness_during is not None:
        tiles.append(("Fairness", f"{summary.fairness_during:.3f}", "while loaded; 1 is fair"))
    return tiles


def _pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    return Table(title, [], [list(row) for row in rows], ends_in_prose=True)


def _users(made: Document) -> list[Table]:
    """Return what each user got beside what a fair server would have given them."""
    groups = made.summary.by_user
    if len(groups) < 2:
        return []
    offers = {user: float(group.offered) for user, group in groups.items()}
    fair = fair_shares(offers, sum(group.ok for group in groups.values()))
    shown = list(groups.items())[:USERS_DRAWN]
    return [
        Table(
            "Requests of each user, and their fair share",
            ["User", "Offered", "Completed", "Fair share"],
            [
                [user, f"{group.offered:,}", f"{group.ok:,}", f"{fair[user]:,.1f}"]
                for user, group in shown
            ],
            shares=[(group.offered, group.ok, fair[user]) for user, group in shown],
        )
    ]


# -- figures


def _look(index: int) -> str:
    return f"class look-{index}"


def _spreads(made: Document) -> list[Figure]:
    """Return how the times are spread, by priority."""
    figures = []
    for title, field in TIMES[:3]:
        groups: dict[str, list[float]] = {name: [] for name in made.summary.by_priority}
        for sample in made.samples.rows:
            value = getattr(sample, f"{field}_s")
            if sample.is_ok and value is not None and sample.priority in groups:
                groups[sample.priority].append(value)
        measured = [(name, sorted(values)) for name, values in groups.items() if values]
        curves = [
            Curve(name, _look(i), [percentile(values, p) for p in range(101)])
            for i, (name, values) in enumerate(measured[:CURVES_MAX])
        ]
        about = "Share of the answers that took no longer, by priority."
        if curves:
            figures.append(
                Figure(title=title, about=about, kind="ranks", unit="duration", curves=curves)
            )
    return figures


def _over_time(made: Document) -> list[Figure]:
    bins, width_s = made.series.bins, made.series.width_s

    def lines(title: str, about: str, unit: Literal["duration", "count"], *curves: Curve) -> Figure:
        span_s = len(bins) * width_s
        return Figure(
            title=title, about=about, kind="lines", unit=unit, span_s=span_s, curves=[*curves]
        )

    def rate(name: str, look: str, counts: Iterable[int]) -> Curve:
        return Curve(name, look, [count / width_s for count in counts])

    figures = [
        lines(
            "Requests a second", "Due, answered and failed, warm-up included.", "count",
            rate("due", _look(1), (one.arrivals for one in bins)),
            rate("answered", _look(3), (one.completions for one in bins)),
            rate("failed", _look(0), (one.errors for one in bins)),
        ),
        lines(
            "Under way", "Sent and not yet answered.", "count",
            Curve("under way", "p50", [one.in_flight for one in bins]),
        ),
        _each(made),
    ]  # fmt: skip
    if any(one.wait_p50 is not None for one in bins):
        figures.append(
            lines(
                "Queue wait, over time", "By when the request was due; as the server tells.",
                "duration",
                Curve("p50", "p50", [one.wait_p50 for one in bins]),
                Curve("p95", "p95", [one.wait_p95 for one in bins]),
            )
        )  # fmt: skip
    return figures


def _each(made: Document) -> Figure:
    """Return every request as a point: what percentiles hide."""
    field, title = ("ttft_s", "First token of each request")
    if made.summary.all.ttft is None:
        field, title = ("total_s", "Total time of each request")
    points: dict[str, list[tuple[float, float]]] = {
        name: [] for name in list(made.summary.by_priority)[:CURVES_MAX]
    }
    for sample in made.samples.rows:
        value = getattr(sample, field)
        if sample.is_ok and value is not None and sample.priority in points:
            points[sample.priority].append((sample.at_s, value))
    curves = [
        Curve(name, f"look-{i}", points=_thinned(found))
        for i, (name, found) in enumerate(points.items())
    ]
    failed = [(sample.at_s, 0.0) for sample in made.samples.rows if sample.is_error]
    if failed:
        curves.append(Curve("failed", "rejected", points=_thinned(failed)))
    return Figure(
        title=title,
        about="By when it was due; failures are at the floor.",
        kind="dots",
        unit="duration",
        span_s=made.summary.span_s + made.settings.warmup_s,
        curves=curves,
    )


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return points[:: max(1, -(-len(points) // POINTS_MAX))]
