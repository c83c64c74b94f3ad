"""What a run is to do: one frozen value, which the report repeats."""

from __future__ import annotations

import math
import random
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.arrivals import Arrival, Kind, bounded, constant, poisson, replayed, sized
from forebay.load.mix import Mix
from forebay.load.quantities import BadPlan
from forebay.load.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_USER = Mix(("user-1",), (1.0,))
ONE_PRIORITY = Mix(("normal",), (1.0,))


class Plan(Struct, frozen=True, kw_only=True):
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
