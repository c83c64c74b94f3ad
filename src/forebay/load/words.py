"""The notes about a run, for the terminal and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.plan import Mix
from forebay.load.quantities import seconds, share, three_digits

if TYPE_CHECKING:
    from forebay.load.document import Document
    from forebay.load.plan import LoadPlan
    from forebay.load.summary import RunSummary

NAMES_SHOWN = 6


def warnings(made: Document) -> list[str]:
    """Return what keeps the figures from meaning what they seem to."""
    summary, plan = made.summary, made.settings
    found = []
    if summary.is_interrupted:
        found.append(
            f"Interrupted: measured for {seconds(summary.elapsed_s)}; "
            f"{summary.all.unfinished:,} requests were still under way and are not counted."
        )
    if summary.is_late and summary.late is not None:
        found.append(
            "THIS MACHINE COULD NOT KEEP THE SCHEDULE: 1 % of the requests were sent more than "
            f"{seconds(summary.late.p99)} late. The times include this delay, which is not the "
            "server's. Lower --rate, or load from an idle machine."
        )
    if summary.all.not_sent:
        found.append(
            f"NOT SENT: {summary.all.not_sent:,} of {summary.all.offered:,} requests, since "
            f"{plan.max_in_flight:,} were under way (--max-in-flight). The times cover the "
            "others only, and are too low."
        )
    if summary.all.ok < 100 and summary.all.ok:
        found.append(
            f"Only {summary.all.ok} answers: the 99th percentile is simply the slowest of them."
        )
    return found


def headline(made: Document) -> str:
    """Return what was done, in a line."""
    plan, summary = made.settings, made.summary
    return (
        f"{plan.model} at {plan.url}: {summary.all.offered:,} requests in "
        f"{seconds(summary.span_s)} ({arrivals(plan, summary)}), "
        f"{'streamed' if plan.stream else 'in one piece'}"
    )


def arrivals(plan: LoadPlan, summary: RunSummary) -> str:
    """Return how requests came."""
    rate = "-" if summary.offered_rate is None else f"{three_digits(summary.offered_rate)}/s"
    if plan.arrivals == "trace":
        faster = f", {plan.speed:g} times as fast" if plan.speed != 1 else ""
        return f"a trace, {rate}{faster}"
    return f"{'Poisson' if plan.arrivals == 'poisson' else 'constant'}, {rate}"


def objectives(plan: LoadPlan) -> str:
    """Return what goodput counts."""
    parts = []
    if plan.slo_ttft_s is not None:
        parts.append(f"first token within {plan.slo_ttft_s:g} s")
    if plan.slo_total_s is not None:
        parts.append(f"whole within {plan.slo_total_s:g} s")
    return " and ".join(parts) or "every success"


def outcome(made: Document) -> list[tuple[str, str]]:
    """Return the figures that are not times, with their names."""
    summary = made.summary
    group = summary.all
    sent = f"{group.ok:,} of {group.ok + group.errors:,} ({share(group.ok_share)})"
    rows = [
        ("Completed", sent),
        ("Goodput", f"{three_digits(group.goodput)} requests/s, "
                    f"{three_digits(group.goodput_tokens)} tokens/s ({objectives(made.settings)})"),
        ("Tokens", f"{group.tokens_in:,} in, " * bool(group.tokens_in) +
                   f"{group.tokens_out:,} out"),
    ]  # fmt: skip
    if len(summary.by_user) > 1:
        rows.append(("Fairness", f"{_index(summary.fairness_during)} while loaded, "
                                 f"{_index(summary.fairness)} in the end (1 is fair)"))  # fmt: skip
    if summary.queued is not None:
        rows.append(("Had to wait", f"{summary.queued:,} of {group.sent:,}"))
    if summary.late is not None:
        rows.append(("Sent late by", f"{seconds(summary.late.p50)} (p50), "
                                     f"{seconds(summary.late.p99)} (p99)"))  # fmt: skip
    return rows


def _index(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def settings_rows(plan: LoadPlan) -> list[tuple[str, str]]:
    """Return the settings of a run, each with its value, for a table."""
    rows = []
    for name in plan.__struct_fields__:
        value = getattr(plan, name)
        if value is None:
            continue
        if isinstance(value, Mix):
            value = mix_text(value)
        is_time = name.endswith("_s")
        label = name.removesuffix("_s").replace("_", " ")
        rows.append((label, seconds(value) if is_time else _written(value)))
    return rows


def mix_text(mix: Mix) -> str:
    """Return a mix as it may be typed; a long one is cut.

    >>> mix_text(Mix(("a", "b"), (1.0, 2.5)))
    'a:1,b:2.5'
    """
    pairs = list(zip(mix.names, mix.weights, strict=True))
    left = len(pairs) - NAMES_SHOWN
    more = f" and {left} more" if left > 0 else ""
    return ",".join(f"{name}:{weight:g}" for name, weight in pairs[:NAMES_SHOWN]) + more


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
