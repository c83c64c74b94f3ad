"""`--fail-if`: conditions that make a run fail, such as `ttft_p95>2s` or `high:errors>0`."""

from __future__ import annotations

import operator
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from forebay.load.quantities import BadPlan, duration_s, seconds, share, three_digits
from forebay.load.summary import GroupSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from forebay.load.summary import RunSummary

_FORM = re.compile(r"\s*(?:([^:<>=\s]+):)?([a-z_0-9]+)\s*(<=|>=|<|>)\s*([^\s].*?)\s*")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
TIMES = ("ttft", "total", "wait", "gap", "stall")
RANKS = ("mean", "p50", "p90", "p95", "p99", "max")
_TIME_METRICS = {f"{time}_{rank}" for time in TIMES for rank in RANKS}
_LATE_METRICS = {f"late_{rank}" for rank in RANKS}
_SHARES = {"error_rate", "ok_rate"}
_RUN_METRICS = {"fairness", "fairness_during", "offered_rate", *_LATE_METRICS}
_COUNTS = {
    field.name for field in msgspec.structs.fields(GroupSummary) if field.type in (int, float)
}
METRICS = sorted(_TIME_METRICS | _RUN_METRICS | _SHARES | _COUNTS)


class Limit(Struct, frozen=True):
    """One thing that must not be."""

    text: str
    group: str | None
    """A priority or a user; None for all."""
    metric: str
    operator: str
    bound: float


class Broken(Struct, frozen=True):
    """A limit that was broken, or that nothing is known about."""

    limit: Limit
    value: float | None

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.limit.text}: not measured"
        return f"{self.limit.text}: it is {shown(self.limit.metric, self.value)}"


def parse_limit(text: str, names: Collection[str], more: frozenset[str] = frozenset()) -> Limit:
    """Read a limit; `names` are the priorities and users there will be. Raises BadPlan.

    `more` are metrics of the whole run beside the usual ones: fields of its summary.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadPlan(
            f"--fail-if: {text!r} is not a condition. Write one such as ttft_p95>2s or errors>0"
        )
    group, metric, sign, value = found[1], found[2], found[3], found[4]
    known = sorted({*METRICS, *more})
    if metric not in known:
        near = get_close_matches(metric, known, 3)
        hint = f" Did you mean {', '.join(near)}?" if near else f" There are: {', '.join(known)}."
        raise BadPlan(f"--fail-if: nothing is called {metric}.{hint}")
    if group is not None and group not in names:
        raise BadPlan(f"--fail-if: {group} is neither a priority nor a user of this run.")
    if group is not None and metric in _RUN_METRICS | more:
        raise BadPlan(f"--fail-if: {metric} is known only for the whole run.")
    return Limit(text.strip(), group, metric, sign, _bound(metric, value))


def broken_limits(limits: list[Limit], summary: RunSummary) -> list[Broken]:
    """Return the limits that do not hold; one that nothing is known about does not."""
    broken = []
    for limit in limits:
        value = value_of(limit, summary)
        if value is None or _OPERATORS[limit.operator](value, limit.bound):
            broken.append(Broken(limit, value))
    return broken


def value_of(limit: Limit, summary: RunSummary) -> float | None:
    """Return what was measured; None where nothing was."""
    metric = limit.metric
    if metric in _LATE_METRICS:
        return None if summary.late is None else getattr(summary.late, metric.removeprefix("late_"))
    if metric in _RUN_METRICS or metric not in METRICS:
        found: float | None = getattr(summary, metric)
        return found
    group: GroupSummary | None = summary.all
    if limit.group is not None:
        group = summary.by_priority.get(limit.group) or summary.by_user.get(limit.group)
    return None if group is None else _of_group(group, metric)


def _of_group(group: GroupSummary, metric: str) -> float | None:
    if metric in _SHARES:
        ok = group.ok_share
        return ok if ok is None or metric == "ok_rate" else 1 - ok
    time, _, rank = metric.partition("_")
    spread = getattr(group, time) if metric in _TIME_METRICS else None
    if metric in _TIME_METRICS:
        return None if spread is None else float(getattr(spread, rank))
    return float(getattr(group, metric))


def shown(metric: str, value: float) -> str:
    """Return a measured value for a person."""
    if metric in _TIME_METRICS | _LATE_METRICS:
        return seconds(value)
    if metric in _SHARES:
        return share(value)
    return f"{value:,.0f}" if value == int(value) else three_digits(value)


def _bound(metric: str, text: str) -> float:
    if metric in _TIME_METRICS | _LATE_METRICS:
        return duration_s(text, "--fail-if")
    number, percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise BadPlan(f"--fail-if: {text!r} is not a number for {metric}.")
    return value / 100 if percent else value
