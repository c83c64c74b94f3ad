"""One table: a row for each measure, a column for each gateway, ratios to HAProxy under it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.table import Table

Figures: TypeAlias = Mapping[str, object]
Results: TypeAlias = Mapping[str, Mapping[str, Figures]]
"""Measure → gateway → figures."""

Detail: TypeAlias = Callable[[Mapping[str, Figures], str], str]


def number(figures: Figures | None, key: str) -> float | None:
    """Return one figure, or None where there is none."""
    found = figures.get(key) if figures else None
    return float(found) if isinstance(found, int | float) else None


def _ratio(measure: Mapping[str, Figures], name: str) -> str:
    own, reference = number(measure.get(name), "value"), number(measure.get("haproxy"), "value")
    paired = number(measure.get(name), "ratio")  # round by round, where rounds were taken
    if paired is not None:
        return f"x {paired:.3f}"
    return f"x {own / reference:.3f}" if own is not None and reference else ""


def _calls(measure: Mapping[str, Figures], name: str) -> str:
    errors = number(measure[name], "errors") or 0
    busy = number(measure[name], "core_busy") or 0
    parts = [_ratio(measure, name)]
    parts += [f"core {busy:.0%}"] if name != "direct" else []
    parts += [f"{errors:.0f} errors"] if errors else []
    return "\n".join(part for part in parts if part)


def _calls_cpu(measure: Mapping[str, Figures], name: str) -> str:
    ratio = number(measure[name], "cpu_ratio")
    return f"x {ratio:.3f}" if ratio is not None and name != "direct" else ""


def _added(key: str) -> Detail:
    def detail(measure: Mapping[str, Figures], name: str) -> str:
        own, direct = number(measure[name], key), number(measure.get("direct"), key)
        lost = number(measure[name], "unanswered") or 0
        if own is None or direct is None or name == "direct":
            return ""
        return f"{own - direct:+.3f}" + (f"\n{lost:.0f} unanswered" if lost else "")

    return detail


def _chunks(measure: Mapping[str, Figures], name: str) -> str:
    if name == "direct":
        return ""
    delivered = number(measure[name], "delivered") or 0
    per_read = number(measure[name], "per_read") or 0
    late = f"\nkept up {delivered:.0%}" if delivered < 0.95 else ""
    held = f"\n{per_read:.0f} at a time" if per_read >= 1.5 else ""
    return _ratio(measure, name) + late + held


def _memory(measure: Mapping[str, Figures], name: str) -> str:
    idle = number(measure[name], "idle_mib")
    reached = number(measure[name], "open") or number(measure[name], "waiting")
    parts = [f"idle {idle:.0f}"] if idle is not None else []
    parts += [f"with {reached:,.0f}"] if reached is not None else []
    return "\n".join(parts)


def _baseline(measure: Mapping[str, Figures], name: str) -> str:
    quiet, status = number(measure[name], "baseline_ms"), number(measure[name], "status")
    refused = f"\nbody refused: {status:.0f}" if status != 200 else ""
    return f"quiet {quiet:.2f}{refused}"


@dataclass(frozen=True)
class Row:
    """How one measure is shown."""

    title: str
    measure: str
    key: str
    shape: str
    detail: Detail
    target: str


ROWS = (
    Row("calls/s, 32 clients", "calls", "value", ",.0f", _calls, "≥ x 0.4"),
    Row("calls/CPU s", "calls", "per_cpu_s", ",.0f", _calls_cpu, "≥ x 0.4"),
    Row("calls/s, 32 clients, 16 slots", "queued_calls", "value", ",.0f", _calls, ""),
    Row("calls/CPU s, 16 slots", "queued_calls", "per_cpu_s", ",.0f", _calls_cpu, ""),
    Row("p50 at 200/s, ms", "latency", "p50_ms", ".3f", _added("p50_ms"), "HAProxy + 0.3"),
    Row("p99 at 200/s, ms", "latency", "p99_ms", ".3f", _added("p99_ms"), ""),
    Row("freed slot → next, p50, ms", "freed_slot", "value", ".3f", _added("value"), "< 0.3"),
    Row("chunks/CPU s, 100 streams", "streams_100", "value", ",.0f", _chunks, "≥ x 0.5"),
    Row("chunks/CPU s, 500 streams", "streams_500", "value", ",.0f", _chunks, "≥ x 0.5"),
    Row("MiB, 1,000 open streams", "open_streams", "value", ",.0f", _memory, "< 150"),
    Row("MiB, 10,000 waiting", "waiting", "value", ",.0f", _memory, "< 150"),
    Row("worst ms beside a 30 MiB body", "large_body", "value", ",.2f", _baseline, "≤ x 2"),
)


def _cell(row: Row, measure: Mapping[str, Figures], name: str) -> str:
    value = number(measure.get(name), row.key)
    if value is None or (value == 0 and name == "direct"):
        return str(measure.get(name, {}).get("left_out", "-"))
    detail = row.detail(measure, name)
    return f"{value:{row.shape}}" + (f"\n[dim]{detail}[/dim]" if detail else "")


def table(results: Results, names: Sequence[str], refused: Mapping[str, str]) -> Table:
    """Draw everything; who did not start stays in it, with the reason underneath."""
    reasons = "\n".join(f"{name} {reason}" for name, reason in refused.items())
    drawn = Table(
        title="Gateways side by side: x to HAProxy, + to direct",
        caption=reasons.replace("[", r"\[") or None,
        title_justify="left",
        caption_justify="left",
        show_lines=True,
    )
    drawn.add_column("what", max_width=20)
    for name in names:
        drawn.add_column(name, justify="right")
    drawn.add_column("target", justify="right")
    if refused:
        states = [refused.get(name, "ok").partition(":")[0] for name in names]
        drawn.add_row("state", *states, "")
    for row in ROWS:
        measure = results.get(row.measure)
        if measure:
            cells = [_cell(row, measure, name) for name in names]
            drawn.add_row(row.title, *cells, row.target)
    return drawn
