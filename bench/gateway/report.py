"""The tables: payloads and what they cost; how far each gateway goes; the other measures.

A column for each gateway; ratios to HAProxy, and to the bare relay, under the figures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
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
    return f"x {own / reference:.3f}" if own is not None and reference else ""


def _nothing(_measure: Mapping[str, Figures], _name: str) -> str:
    return ""


def _delay(measure: Mapping[str, Figures], name: str) -> str:
    """What the last token of a hundred waited, and the core, with the most that were sustained."""
    rounds = measure[name].get("rounds")
    most = rounds.get(measure[name]["value"]) if isinstance(rounds, Mapping) else None
    if most is None:
        return ""
    return f"p99 {most['delay_p99_us'] / 1e3:.1f} ms\ncore {most['core_busy']:.0%}"


def _busy(measure: Mapping[str, Figures], name: str) -> str:
    busy = number(measure[name], "busy_1000")
    return f"core {busy:.0%}" if busy else ""


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
    Row("calls/s, p99 < 1 ms", "frontier", "within_1_ms", ",.0f", _nothing, ""),
    Row("calls/s, p99 < 5 ms", "frontier", "within_5_ms", ",.0f", _nothing, ""),
    Row("calls/s, p99 < 10 ms", "frontier", "within_10_ms", ",.0f", _nothing, ""),
    Row("CPU µs a call, 32 clients", "frontier", "cpu_us", ",.1f", _nothing, ""),
    Row("first token, p50, ms", "first_token", "p50_ms", ".3f", _added("p50_ms"), ""),
    Row("first token, p99, ms", "first_token", "p99_ms", ".3f", _added("p99_ms"), ""),
    Row("streams sustained, 20 tokens/s", "sustained", "value", ",.0f", _delay, ""),
    Row("token late, p99 ms, 1,000 streams", "sustained", "delay_1000_ms", ".1f", _busy, "< 5"),
    Row("p50 at 200/s, ms", "latency", "p50_ms", ".3f", _added("p50_ms"), "HAProxy + 0.3"),
    Row("p99 at 200/s, ms", "latency", "p99_ms", ".3f", _added("p99_ms"), ""),
    Row("freed slot → next, p50, ms", "freed_slot", "value", ".3f", _added("value"), "< 0.3"),
    Row("chunks/CPU s, 100 streams", "streams_100", "value", ",.0f", _chunks, "≥ x 0.8"),
    Row("the same, all in step", "streams_100_in_step", "value", ",.0f", _chunks, "≥ x 0.8"),
    Row("chunks/CPU s, 500 streams", "streams_500", "value", ",.0f", _chunks, "≥ x 0.8"),
    Row("the same, all in step", "streams_500_in_step", "value", ",.0f", _chunks, "≥ x 0.8"),
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


def _drawn(title: str, names: Sequence[str], caption: str = "") -> Table:
    drawn = Table(
        title=title,
        caption=caption.replace("[", r"\[") or None,
        title_justify="left",
        caption_justify="left",
        show_lines=True,
    )
    drawn.add_column("what", max_width=26)
    for name in names:
        drawn.add_column(name, justify="right")
    return drawn


def table(results: Results, names: Sequence[str], refused: Mapping[str, str]) -> Table:
    """Draw the other measures; who did not start stays in it, with the reason underneath."""
    reasons = "\n".join(f"{name} {reason}" for name, reason in refused.items())
    drawn = _drawn("Gateways side by side: x to HAProxy, + to direct", names, reasons)
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


def payload_table(results: Results, names: Sequence[str], title: str) -> Table:
    """Draw payload x gateway: calls/CPU s, both ratios with their spread, p50 and p99."""
    drawn = _drawn(f"{title}: calls/CPU s, to HAProxy, to the bare relay, p50 / p99 ms", names)
    for payload, gateways in results.items():
        drawn.add_row(payload, *(_payload_cell(gateways.get(name, {})) for name in names))
    return drawn


def _payload_cell(figures: Figures) -> str:
    per_cpu_s, errors = number(figures, "per_cpu_s"), number(figures, "errors")
    if per_cpu_s is None:
        return str(figures.get("left_out", "-"))
    times = f"{number(figures, 'p50_ms'):.2f} / {number(figures, 'p99_ms'):.2f}"
    ratios = [_spread(figures.get(key)) for key in ("to_haproxy", "to_bare_relay")]
    parts = [f"{per_cpu_s:,.0f}", *ratios] if per_cpu_s else []
    parts += [f"[dim]{times}[/dim]", f"{errors:.0f} errors" if errors else ""]
    return "\n".join(part for part in parts if part)


def _spread(ratio: object) -> str:
    if not isinstance(ratio, Mapping):
        return ""
    around = f" ({ratio['min']:.2f}-{ratio['max']:.2f})" if ratio["min"] < ratio["max"] else ""
    return f"x {ratio['median']:.3f}{around}"


def headline(results: Results, build: str, expected: Sequence[str]) -> str:
    """Return one line about a build, or why there is none: it takes all payloads."""
    ratios = {
        payload: ratio["median"]
        for payload, gateways in results.items()
        if isinstance(ratio := gateways.get(build, {}).get("to_haproxy"), Mapping)
    }
    missing = [payload for payload in expected if payload not in ratios]
    if missing:
        return f"{build}: no headline, {len(missing)} of {len(expected)} payloads are missing"
    least = min(ratios, key=ratios.__getitem__)
    return (
        f"{build}: x {median(ratios.values()):.2f} of HAProxy's calls/CPU s, the median of "
        f"{len(expected)} payloads; the least is {least}, x {ratios[least]:.2f}"
    )
