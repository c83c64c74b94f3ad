"""Durations: parsed from what people type, and formatted."""

from __future__ import annotations

import math
import re

from forebay.errors import NotAllowed

_UNITS_S = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(ms|s|min|m|h|)\s*")
DURATION_S_MAX = 7 * 86_400.0
"""A week: nobody watches longer, and what is summed stays exact."""


class BadPlan(NotAllowed):
    """What was asked for cannot be run; the text names the option and says what to do."""

    code = "bad_plan"


def duration_s(text: str, option: str) -> float:
    """Return a duration in seconds; raises BadPlan, naming the option.

    >>> duration_s("30s", "--duration"), duration_s("250ms", "--slo-ttft"), duration_s("1.5m", "x")
    (30.0, 0.25, 90.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise BadPlan(f"{option}: {text!r} is not a duration. Write 30s, 500ms, 2m or 1h.")
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if seconds > DURATION_S_MAX:
        raise BadPlan(f"{option}: {text} is longer than a week.")
    return seconds


def seconds(value: float | None) -> str:
    """Return a measured time for a person, to three digits.

    >>> seconds(0.01234), seconds(0.9996), seconds(12.34), seconds(250), seconds(None)
    ('12.3 ms', '1.00 s', '12.3 s', '250 s', '-')
    """
    if value is None:
        return "-"
    if abs(value) < 0.9995:
        return f"{three_digits(value * 1000)} ms"
    return f"{three_digits(value)} s"


def three_digits(value: float) -> str:
    """Return a number with three digits that count, never in powers of ten.

    >>> three_digits(0), three_digits(1.234), three_digits(99.96), three_digits(12345.6)
    ('0', '1.23', '100', '12,346')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{places}f}"


def share(value: float | None) -> str:
    """Return a share as a percentage.

    >>> share(0.5), share(0.9999), share(1), share(None)
    ('50.0 %', '99.9 %', '100 %', '-')
    """
    if value is None:
        return "-"
    if value in (0, 1):
        return f"{value * 100:.0f} %"
    return f"{min(99.9, max(0.1, value * 100)):.1f} %"
