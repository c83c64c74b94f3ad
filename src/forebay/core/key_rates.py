"""One key with limits: what it may start now, what it is charged, what its callers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.actions import RateStatus
from forebay.core.buckets import ROUNDING
from forebay.core.fairness import best

if TYPE_CHECKING:
    from forebay.core.options import KeyLimits
    from forebay.core.records import Claim, Entry, KeyRate


def change_limits(rate: KeyRate, limits: KeyLimits, now_s: float) -> None:
    """Take over other limits; what was used of them stays used."""
    rate.limits = limits
    rate.requests.resize(limits.requests_per_minute, now_s)
    rate.tokens.resize(limits.tokens_per_minute, now_s)


def is_full(rate: KeyRate, rank: int) -> bool:
    """Say whether its cap keeps a prompt, or a job by its rank, from starting now."""
    return rate.held >= rate.running_max or (rate.calls > 0 and rank == len(rate.owed) - 1)


def empty_buckets(rate: KeyRate, now_s: float) -> None:
    """Take the whole last minute as used."""
    rate.requests.empty(now_s)
    rate.tokens.empty(now_s)


def charge_claim(rate: KeyRate, claim: Claim, requests: int, tokens: float, now_s: float) -> None:
    """Charge a start, or correct what it was charged to so many tokens in all."""
    if requests:
        rate.requests.take(requests, now_s)
    claim.taken += rate.tokens.take(tokens - claim.taken, now_s)
    count_today(rate, tokens - claim.tokens if claim.charged else tokens)
    claim.tokens, claim.charged = tokens, True


def count_today(rate: KeyRate, tokens: float) -> None:
    """Add to what was used today, or take off."""
    rate.used_today = max(0.0, rate.used_today + tokens)


def note_owed(rate: KeyRate, rank: int, requests: int, tokens: float) -> None:
    """Count an entry that waits and is not charged, or does so no more (below 0)."""
    rate.owed[rank] += requests
    rate.tokens_owed[rank] += tokens


def owed_up_to(rate: KeyRate, rank: int) -> tuple[int, float]:
    """Return the entries of the classes up to one that wait and are not charged."""
    return sum(rate.owed[: rank + 1]), sum(rate.tokens_owed[: rank + 1])


def bucket_wait_s(
    rate: KeyRate, tokens: float, ahead: tuple[int, float], day_left_s: float, now_s: float
) -> float:
    """Return when the buckets allow one of so many tokens, after those ahead of it."""
    requests_ahead, tokens_ahead = ahead
    wait_s = rate.requests.wait_s(1.0, requests_ahead, now_s)
    wait_s = max(wait_s, rate.tokens.wait_s(tokens, tokens_ahead, now_s))
    limit, used = rate.limits.tokens_per_day, rate.used_today + tokens_ahead
    if limit and used > 0.0 and used + tokens > limit:
        wait_s = max(wait_s, day_left_s)
    return wait_s


def status_of(rate: KeyRate, day_left_s: float, now_s: float) -> RateStatus:
    """Return what callers are told of the limits and of what is left of them."""
    limits, requests, tokens = rate.limits, rate.requests, rate.tokens
    limit, left, reset_s = limits.tokens_per_minute, tokens.level(now_s), tokens.reset_s(now_s)
    day_left = limits.tokens_per_day - rate.used_today
    if limits.tokens_per_day and (not limit or day_left < left):
        limit, left, reset_s = limits.tokens_per_day, day_left, day_left_s
    return RateStatus(
        limits.requests_per_minute,
        max(0, int(requests.level(now_s) + ROUNDING)),
        requests.reset_s(now_s),
        limit,
        max(0, int(left + ROUNDING)),
        reset_s,
    )


def next_parked(rate: KeyRate) -> Entry | None:
    """Return the first of those that wait for the buckets: the highest class, then the oldest."""
    first: Entry | None = None
    for line in rate.lines.values():
        if line.offer is not None or (line.gated and is_full(rate, line.rank)):
            continue
        head = best(line)
        if head is not None and (first is None or place_of(head) < place_of(first)):
            first = head
    return first


def place_of(entry: Entry) -> tuple[int, int]:
    """Return the order in which those of one key have its buckets."""
    return entry.queue.rank, entry.seq
