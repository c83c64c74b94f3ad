"""The calls of a trace: read from the files that providers publish, or drawn at random.

Read are the traces of Azure (CSV), of Mooncake (JSON lines) and of ServeGen, which gives the rates
of each client in windows of ten minutes and the quantiles of lengths, so that its calls are drawn.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from datetime import UTC, datetime
from itertools import pairwise
from math import exp, log, pi, sin
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from random import Random

USERS = 100
CLOCK_CHARACTERS = 26
"""Azure's seven digits after the point are one more than Python reads."""
WINDOW_S = 600.0
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class Call(NamedTuple):
    """One request of a trace."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    user: str


def read_calls(path: Path, rng: Random) -> list[Call]:
    """Read a trace of Azure or Mooncake; the users, whom it does not tell, are drawn by Zipf."""
    rows = sorted(_azure(path) if path.suffix == ".csv" else _mooncake(path))
    users = draw_users(len(rows), rng)
    return [Call(*row, user) for row, user in zip(rows, users, strict=True)]


def draw_users(count: int, rng: Random, exponent: float = 1.0) -> list[str]:
    """Draw a user for each call; with an exponent of 1 the first has a fifth of them."""
    weights = [(number + 1) ** -exponent for number in range(USERS)]
    return rng.choices([f"user{number}" for number in range(USERS)], weights, k=count)


def _azure(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open(newline="") as file:
        first_s: float | None = None
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["TIMESTAMP"][:CLOCK_CHARACTERS])
            at_s = at.replace(tzinfo=UTC).timestamp()
            first_s = at_s if first_s is None else first_s
            yield at_s - first_s, int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _mooncake(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open() as file:
        for line in file:
            row = json.loads(line)
            yield row["timestamp"] / 1000, row["input_length"], row["output_length"]


class ServeGen:
    """The clients of ServeGen: calls are drawn from their rates, variation and lengths."""

    def __init__(self, rates: Path, lengths: Path) -> None:
        self._rates: dict[float, dict[str, tuple[float, float]]] = {}  # window -> client -> ...
        with rates.open(newline="") as file:
            for row in csv.DictReader(file):
                window = self._rates.setdefault(float(row["t_start_s"]), {})
                window[row["client_id"]] = float(row["rate_rps"]), float(row["cv"])
        self._lengths: dict[tuple[str, str], list[tuple[float, list[float]]]] = {}
        with lengths.open(newline="") as file:
            for row in csv.DictReader(file):
                values = [float(row[f"p{round(100 * share)}"]) for share in QUANTILES]
                key = row["client_id"], row["field"]
                self._lengths.setdefault(key, []).append((float(row["t_start_s"]), values))

    def draw(self, first_s: float, span_s: float, rate_per_s: float, rng: Random) -> list[Call]:
        """Draw the calls of a span, with all rates scaled so that their mean is `rate_per_s`.

        Users are drawn by Zipf as for the other traces: a client of ServeGen is a whole product.
        """
        windows = [self._rates.get(first_s + at_s, {}) for at_s in _steps(span_s)]
        total = sum(rate for window in windows for rate, _ in window.values()) / len(windows)
        rows: list[tuple[float, int, int]] = []
        for number, window in enumerate(windows):
            for client, (rate, cv) in window.items():
                shape = 1.0 / max(cv, 0.1) ** 2
                rate *= rate_per_s / total
                begin_s = number * WINDOW_S
                for at_s in _renewals(begin_s, begin_s + WINDOW_S, rate, shape, rng):
                    prompt, output = (
                        self._length(client, field, first_s + at_s, rng.random())
                        for field in ("input_tokens", "output_tokens")
                    )
                    rows.append((at_s, prompt, output))
        rows.sort()
        users = draw_users(len(rows), rng)
        return [Call(*row, user) for row, user in zip(rows, users, strict=True)]

    def _length(self, client: str, field: str, at_s: float, share: float) -> int:
        known = self._lengths.get((client, field))
        if not known:
            return 100
        latest = max(0, bisect_right([since_s for since_s, _ in known], at_s) - 1)
        return max(1, round(_quantile(known[latest][1], share)))


def _steps(span_s: float) -> Iterator[float]:
    return (WINDOW_S * number for number in range(max(1, round(span_s / WINDOW_S))))


def _quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile between those that are known; beyond the last there is nothing."""
    points = list(zip(QUANTILES, values, strict=True))
    for (below, low), (above, high) in pairwise(points):
        if share <= above:
            return low + max(0.0, share - below) / (above - below) * (high - low)
    return values[-1]


def _renewals(
    begin_s: float, end_s: float, rate_per_s: float, shape: float, rng: Random
) -> Iterator[float]:
    """Draw arrivals whose gaps are gamma distributed: the lower the shape, the more in bursts."""
    if rate_per_s <= 0.0:
        return
    at_s = begin_s + rng.random() / rate_per_s
    while at_s < end_s:
        yield at_s
        at_s += rng.gammavariate(shape, 1.0 / (shape * rate_per_s))


class Traffic(NamedTuple):
    """What a trace is drawn from: the shape of conversations with people, by default."""

    calls: int = 12_000
    span_s: float = 3_500.0
    cv: float = 1.2
    """Of the gaps between arrivals; 1 is Poisson."""
    tide: float = 0.3
    """How much the rate swings about its mean over the span, once up and once down."""
    bursts: int = 6
    """How often one user sends a hundredth of all calls within half a minute."""
    prompt_median: float = 1_000.0
    prompt_sigma: float = 1.0
    output_median: float = 130.0
    output_sigma: float = 0.9
    zipf: float = 1.0


def draw_calls(traffic: Traffic, rng: Random) -> list[Call]:
    """Draw a trace: gamma renewals along a tide, lognormal lengths, Zipf users, bursts."""
    shape = 1.0 / traffic.cv**2
    each = traffic.calls // 100 if traffic.bursts else 0
    steady = traffic.calls - traffic.bursts * each
    even = _renewals(0.0, traffic.span_s, steady / traffic.span_s, shape, rng)
    phase = rng.random()
    times = [(_along_tide(at_s, traffic, phase), "") for at_s in even]
    for _ in range(traffic.bursts):
        begin_s, user = rng.uniform(0.0, traffic.span_s - 30.0), f"user{rng.randrange(USERS)}"
        times += [(begin_s + rng.uniform(0.0, 30.0), user) for _ in range(each)]
    times.sort()
    users = draw_users(len(times), rng, traffic.zipf)
    return [
        Call(
            at_s,
            _lognormal(traffic.prompt_median, traffic.prompt_sigma, rng),
            _lognormal(traffic.output_median, traffic.output_sigma, rng),
            bursting or user,
        )
        for (at_s, bursting), user in zip(times, users, strict=True)
    ]


def _along_tide(at_s: float, traffic: Traffic, phase: float) -> float:
    """Move an arrival of an even stream so that the rate swings once over the span."""
    turn = 2.0 * pi * (at_s / traffic.span_s + phase)
    shift_s = traffic.tide * traffic.span_s / (2.0 * pi) * (sin(turn) - sin(2.0 * pi * phase))
    return min(max(0.0, at_s + shift_s), traffic.span_s)


def _lognormal(median: float, sigma: float, rng: Random) -> int:
    return max(1, round(min(exp(rng.gauss(log(median), sigma)), median * 60.0)))
