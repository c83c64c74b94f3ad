"""When requests arrive, decided before anything is sent: open loop.

Users do not wait for each other's answers, so arrivals must not either. A closed loop (so many
workers, each sending when its last answer came) slows down exactly when the server does, and hides
the waiting it should measure; see Schroeder, Wierman and Harchol-Balter, "Open versus closed: a
cautionary tale", NSDI 2006. Here the times come from a seed or a file and nothing that is measured
can move them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from forebay.load.quantities import BadPlan

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from forebay.load.trace import TraceRow

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
