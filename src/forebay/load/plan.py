"""What a run is to do: one frozen value, which the report repeats; who asks, and when.

Arrivals are decided before anything is sent: open loop. Users do not wait for each other's answers,
so arrivals must not either. A closed loop (so many workers, each sending when its last answer came)
slows down exactly when the server does, and hides the waiting it should measure; see Schroeder,
Wierman and Harchol-Balter, "Open versus closed: a cautionary tale", NSDI 2006. Here the times come
from a seed or a file and nothing that is measured can move them.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from forebay.load.quantities import BadPlan
from forebay.load.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.load.trace import TraceRow

NAMES_MAX = 1000
"""Each name has its own row of figures; more than this nobody reads."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


class Mix(Struct, frozen=True):
    """Names, and how often each is drawn in proportion to the others."""

    names: tuple[str, ...]
    weights: tuple[float, ...]

    def draw(self, source: random.Random) -> str:
        sums = list(accumulate(self.weights))
        place = bisect(sums, source.random() * sums[-1])
        return self.names[min(place, len(self.names) - 1)]

    def shares(self) -> dict[str, float]:
        """Return each name's share of all that is drawn."""
        whole = math.fsum(self.weights)
        return {name: weight / whole for name, weight in zip(self.names, self.weights, strict=True)}


def parse_mix(text: str, option: str, prefix: str) -> Mix:
    """Read `alice:1,bob:3`, or `4` for four of a kind; raises BadPlan, naming the option.

    >>> parse_mix("high:1,normal", "--priorities", "p")
    Mix(names=('high', 'normal'), weights=(1.0, 1.0))
    >>> parse_mix("2", "--users", "user-").names
    ('user-1', 'user-2')
    """
    if text.isascii() and text.isdigit():
        count = int(text) if len(text) < 6 else NAMES_MAX + 1
        if not 1 <= count <= NAMES_MAX:
            raise BadPlan(f"{option}: between 1 and {NAMES_MAX:,}, not {text}.")
        return Mix(tuple(f"{prefix}{i + 1}" for i in range(count)), (1.0,) * count)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > NAMES_MAX:
        raise BadPlan(f"{option}: at most {NAMES_MAX:,} names.")
    weights: dict[str, float] = {}
    for part in parts:
        name, colon, weight = part.partition(":")
        if _NAME.fullmatch(name) is None:
            raise BadPlan(
                f"{option}: {name!r} is not a name. Write names of letters, digits and ._@+- "
                "with their weights: alice:1,bob:3"
            )
        if name in weights:
            raise BadPlan(f"{option}: {name} is listed twice.")
        weights[name] = _weight(weight, part, option) if colon else 1.0
    return Mix(tuple(weights), tuple(weights.values()))


def _weight(text: str, part: str, option: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and 0 < weight <= 1e9):
        raise BadPlan(f"{option}: the weight in {part!r} must be a number above 0.")
    return weight


Kind: TypeAlias = Literal["poisson", "constant", "trace"]
REQUESTS_MAX = 200_000
"""All that is measured is kept until the end, about 500 bytes each: 100 MB at most."""


class Arrival(Struct, frozen=True):
    """One request that is to be sent."""

    at_s: float
    """When, from the start of the run."""
    prompt_tokens: int
    tokens_max: int


def poisson(rate: float, span_s: float, source: random.Random) -> Iterator[float]:
    """Yield the times of a Poisson stream: independent users, no memory."""
    at_s = source.expovariate(rate)
    while at_s < span_s:
        yield at_s
        at_s += source.expovariate(rate)


def constant(rate: float, span_s: float) -> Iterator[float]:
    """Yield times with the same gap between them; counted, so that nothing drifts."""
    number = 0
    while (at_s := number / rate) < span_s:
        yield at_s
        number += 1


def sized(times: Iterable[float], prompt_tokens: int, tokens_max: int) -> Iterator[Arrival]:
    """Give every arrival the same sizes."""
    for at_s in times:
        yield Arrival(at_s, prompt_tokens, tokens_max)


def replayed(rows: Iterable[TraceRow], speed: float, span_s: float | None) -> Iterator[Arrival]:
    """Yield the arrivals of a trace, faster or slower by `speed`, up to `span_s` of the run."""
    first_s: float | None = None
    for row in rows:
        first_s = row.at_s if first_s is None else first_s
        at_s = (row.at_s - first_s) / speed
        if span_s is not None and at_s >= span_s:
            return
        yield Arrival(at_s, row.prompt_tokens, row.tokens_max)


def bounded(arrivals: Iterable[Arrival], limit: int | None) -> list[Arrival]:
    """Return them all, `limit` at most; raises BadPlan for more than can be kept."""
    kept: list[Arrival] = []
    for arrival in arrivals:
        if limit is not None and len(kept) >= limit:
            break
        if len(kept) >= REQUESTS_MAX:
            raise BadPlan(
                f"this would send more than {REQUESTS_MAX:,} requests, more than are kept in "
                "memory. Lower --rate or --duration, or set --limit."
            )
        kept.append(arrival)
    return kept


ONE_USER = Mix(("user-1",), (1.0,))
ONE_PRIORITY = Mix(("normal",), (1.0,))


class LoadPlan(Struct, frozen=True, kw_only=True):
    """The settings of a run. Times are in seconds."""

    url: str
    model: str
    arrivals: Kind = "poisson"
    rate: float | None = 5.0
    """Requests a second; None with a trace."""
    duration_s: float | None = 30.0
    """How long is measured; None with a trace that is replayed to its end."""
    warmup_s: float = 0.0
    """Before that: sent, but not measured."""
    trace: str | None = None
    speed: float = 1.0
    limit: int | None = None
    users: Mix = ONE_USER
    priorities: Mix | None = None
    """None: no priority is asked for."""
    stream: bool = True
    usage: bool = True
    """Ask streams to end with the count of their tokens."""
    max_tokens: int = 64
    prompt_tokens: int = 64
    ignore_eos: bool = False
    seed: int = 0
    salt: str = ""
    """Makes the prompts other than those of any other run, and nothing else."""
    max_in_flight: int = 500
    timeout_s: float = 120.0
    retries: int = 0
    slo_ttft_s: float | None = None
    slo_total_s: float | None = None

    def source(self, use: str) -> random.Random:
        """Return the random numbers of one use: changing one use leaves the others as they were."""
        return random.Random(f"{self.seed}/{use}")

    def schedule(self) -> list[Arrival]:
        """Return everything that will be sent, in order; raises BadPlan."""
        planned = bounded(self._arrivals(), self.limit)
        if not planned:
            raise BadPlan("nothing would be sent. Raise --rate or --duration, or look at --trace.")
        if planned[-1].at_s < self.warmup_s:
            raise BadPlan("--warmup covers the whole run, so nothing would be measured.")
        return planned

    def _arrivals(self) -> Iterator[Arrival]:
        span_s = None if self.duration_s is None else self.warmup_s + self.duration_s
        if self.arrivals == "trace":
            assert self.trace is not None
            return replayed(read_trace(Path(self.trace)), self.speed, span_s)
        assert self.rate is not None
        assert span_s is not None
        if self.arrivals == "constant":
            times = constant(self.rate, span_s)
        else:
            times = poisson(self.rate, span_s, self.source("arrivals"))
        return sized(times, self.prompt_tokens, self.max_tokens)

    def span_s(self, planned: list[Arrival]) -> float:
        """Return for how long arrivals come, warm-up included; 0 where nobody can say.

        A trace, and what `limit` has cut, end one gap after their last request, as if another
        would come then: so many requests in that time is the rate.
        """
        whole_s = math.inf if self.duration_s is None else self.warmup_s + self.duration_s
        is_cut = self.limit is not None and len(planned) >= self.limit
        if self.arrivals != "trace" and not is_cut:
            return whole_s
        last_s = planned[-1].at_s
        gap_s = last_s / max(1, len(planned) - 1) if self.rate is None else 1 / self.rate
        return min(last_s + gap_s, whole_s)


def longest_prompt(planned: list[Arrival]) -> int:
    """Return the tokens of the longest prompt there will be."""
    return max(chain((arrival.prompt_tokens for arrival in planned), (1,)))
