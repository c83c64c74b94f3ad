"""The figures of a soak, and what is wrong, in a few lines."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.soak.verdict import SERIES, growth

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from bench.soak.samples import Sample
    from bench.soak.tally import Tally


def tracebacks(log: Path) -> int:
    """Count the tracebacks in a log."""
    with log.open(errors="replace") as lines:
        return sum("Traceback (most recent call last)" in line for line in lines)


def summary(
    samples: Sequence[Sample], tally: Tally, problems: Sequence[str], options: argparse.Namespace
) -> str:
    """Return the verdict with its figures."""
    verdict = "FAILED" if problems else "passed"
    lines = [f"Soak {verdict}: seed {options.seed}, {options.rate:g} visits/s, {options.hours:g} h"]
    lines += [f"  wrong: {text}" for text in problems[:60]]
    if len(samples) >= 8:
        lines += _figures(samples)
    lines.append(f"  sent: {tally.requests} requests")
    lines += [f"    {count:8d}  {name}" for name, count in sorted(tally.outcomes.items())]
    if samples:
        lines.append("  ended, as the gateway counts:")
        ended = sorted(samples[-1].outcomes.items())
        lines += [f"    {count:8.0f}  {name}" for name, count in ended]
    return "\n".join(lines) + "\n"


def _figures(samples: Sequence[Sample]) -> list[str]:
    first, last = samples[0], samples[-1]
    spent_s = last.at_s - first.at_s
    found = [f"  {spent_s / 60:.1f} minutes, {len(samples)} samples"]
    for series in SERIES:
        points = series.points(samples)
        by_median, by_slope = growth(points)
        seen = [value for _, value in points]
        found.append(
            f"  {series.name}: median {median(seen):.1f}, at most {max(seen):.1f}; over half of "
            f"the run {by_median:+.1f} by medians, {by_slope:+.1f} by slope"
        )
    found.append(f"  /metrics answered within {max(one.health_s for one in samples):.2f} s")
    found.append(
        f"  {(last.requests - first.requests) / spent_s:.1f} requests/s; processor time: gateway "
        f"{(last.cpu_s - first.cpu_s) / spent_s:.1%}, everything about "
        f"{(last.all_cpu_s - first.all_cpu_s) / spent_s:.1%} of one core"
    )
    return found
