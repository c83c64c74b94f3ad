"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.charts import (
    CURVES_MAX,
    Curve,
    bar,
    count,
    distribution,
    over_time,
    scatter,
    tick,
)
from forebay.load.html import Markup, joined, notes, page, pairs, table, tag, tiles
from forebay.load.quantities import seconds, share, three_digits
from forebay.load.statistics import fair_shares
from forebay.load.words import headline, objectives, outcome, settings_rows, warnings

if TYPE_CHECKING:
    from collections.abc import Iterable

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
USERS_DRAWN = 16
USERS_SHOWN = 50


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
        ("Completed", share(group.ok_share), f"{group.ok:,} of {group.ok + group.errors:,}"),
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
        groups: dict[str, list[float]] = {name: [] for name in made.summary.by_priority}
        for sample in made.samples.rows:
            value = getattr(sample, f"{field}_s")
            if sample.is_ok and value is not None and sample.priority in groups:
                groups[sample.priority].append(value)
        measured = {name: sorted(values) for name, values in groups.items() if values}
        if measured:
            about = "Share of the answers that took no longer, by priority."
            found.append(distribution(title, about, "Priority", measured))
    if len(made.summary.by_user) > 1:
        found.append(_users(made))
    return found


def _users(made: Document) -> Markup:
    groups = made.summary.by_user
    offers = {user: float(group.offered) for user, group in groups.items()}
    shares = fair_shares(offers, sum(group.ok for group in groups.values()))
    shown = list(groups.items())[:USERS_DRAWN]
    most = max(group.offered for _, group in shown)
    rows = [
        [
            user,
            f"{group.offered:,}",
            f"{group.ok:,}",
            f"{shares[user]:,.1f}",
            bar(group.offered, group.ok, shares[user], most),
        ]
        for user, group in shown
    ]
    about = "Requests of each user, and what a fair server of this capacity would have served."
    return tag(
        "figure",
        tag("figcaption", tag("h3", "Users"), tag("p", about)),
        table(
            "Users", ["User", "Offered", "Completed", "Fair share", "Completed of offered"], rows
        ),
    )


def _time_lines(made: Document) -> list[Markup]:
    bins, width_s = made.series.bins, made.series.width_s

    def curve(name: str, look: str, values: Iterable[float | None]) -> Curve:
        return Curve(name, [((i + 0.5) * width_s, v) for i, v in enumerate(values)], look)

    rates = [
        curve("due", "s1", (one.arrivals / width_s for one in bins)),
        curve("answered", "s3", (one.completions / width_s for one in bins)),
        curve("failed", "s2", (one.errors / width_s for one in bins)),
    ]
    flight = [curve("under way", "s1", (one.in_flight for one in bins))]
    waits = [
        curve("queue wait p50", "s3", (one.wait_p50 for one in bins)),
        curve("queue wait p95", "s5", (one.wait_p95 for one in bins)),
    ]
    drawn = [
        over_time("Requests a second", "Due, answered and failed, warm-up included.", rates,
                  width_s, count),
        over_time("Under way", "Sent and not yet answered.", flight, width_s, count),
        _each(made),
    ]  # fmt: skip
    if any(one.wait_p50 is not None for one in bins):
        about = "By when the request was due; as the server tells."
        drawn.append(over_time("Queue wait, over time", about, waits, width_s, tick))
    return drawn


def _each(made: Document) -> Markup:
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
    failed = [sample.at_s for sample in made.samples.rows if sample.is_error]
    about = "By when it was due; failures are at the floor."
    span_s = made.summary.span_s + made.settings.warmup_s
    return scatter(title, about, points, failed, span_s)


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
    head = [kind, "Offered", "Completed", "Failed", "First p50", "p95", "Total p50", "p95",
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
        "Open loop: requests were sent when they were due, regardless of the others, "
        "and every time counts from when the request was due, not from when it was sent.",
        "Percentiles are values that were measured (nearest rank), of successful answers only. "
        "Fairness is Jain's index over what each user got of their max-min fair share.",
    )
    return tag("footer", joined(tag("p", text) for text in texts))
