"""The figures as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.output import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile by nearest rank: a time that somebody had."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def posts(found: Mapping[str, Mapping[str, float]]) -> Table:
    shown = table("Arrive + route + finish, the coordinator alone", "", "best, µs", "ratio")
    for name, one in found.items():
        shown.add_row(name, f"{one['best_us']:.1f}", f"{one['ratio']:.1f}")
    return shown


def store(found: Mapping[str, Mapping[str, float]]) -> Table:
    shown = table(
        "What one request asks of the store", "", "granted at once", "commands", "XADD", "XREAD",
        "scripts", "bytes in", "bytes out", "the store's CPU, µs", "all replicas', µs",
    )  # fmt: skip
    for name, one in found.items():
        shown.add_row(
            name,
            f"{one['granted_at_once']:.0%}",
            *(f"{one[key]:.2f}" for key in
              ("commands", "xadd_commands", "xread_commands", "evalsha_commands")),
            *(f"{one[key]:.0f}" for key in
              ("bytes_in", "bytes_out", "cpu_us", "all_replicas_cpu_us")),
        )  # fmt: skip
    return shown


def failover(found: Mapping[str, Sequence[float]]) -> Table:
    title = "Time without grants when the leader goes, in leases (target: under 2)"
    shown = table(title, "", "median", "worst", "rounds")
    for name, taken in found.items():
        worst = f"{max(taken):.2f}"
        shown.add_row(name, f"{quantile(taken, 0.5):.2f}", worst, str(len(taken)))
    return shown


def depth(found: Sequence[Mapping[str, Any]]) -> Table:
    title = "From Finished to the next Route, tickets waiting over two replicas, a third leads"
    shown = table(
        title, "waiting", "grant p50, ms", "p99, ms", "leader CPU, µs a grant", "idle, % of a core",
        "a new leader after, s",
    )  # fmt: skip
    for one in found:
        shown.add_row(
            f"{one['depth']:,}",
            *(f"{one[key]:.2f}" for key in ("p50_ms", "p99_ms")),
            f"{1e6 * one['leader_cpu_s']:.0f}",
            f"{100 * one['leader_idle_cpu']:.1f}",
            f"{one['takeover_s']:.2f}",
        )
    return shown


def throughput(found: Mapping[str, Any]) -> Table:
    columns = ("calls/s", "ratio", "per CPU s", "ratio", "store commands")
    shown = table(
        "Chat calls through real gateways, 32 clients, all gateways on one core", "",
        *columns, *(f"queued: {column}" for column in columns),
    )  # fmt: skip
    for name in found["free"]:
        cells: list[str] = []
        for one in (found["free"][name], found["queued"][name]):
            asked = [figures.get("store_commands", 0.0) for figures in one["rounds"]]
            cells += [f"{one['per_second']:,.0f}", f"{one['ratio']:.2f}"]
            cells += [f"{one['per_cpu_s']:,.0f}", f"{one['cpu_ratio']:.2f}"]
            cells.append(f"{quantile(asked, 0.5):.2f}")
        shown.add_row(name, *cells)
    return shown
