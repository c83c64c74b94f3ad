"""How near promised waits must be, in shares of waits above a second.

FIFO: the p50 within a factor of 2, and within 1.25. Where users take turns: within a factor of 2 or
2 s. The p90 covers 85 to 95 %, and 80 to 97 % in each third of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.traces.replay import Fairness, Verdict

LOADS = (0.9, 1.0, 1.05)
FIFO_WITHIN_2, FIFO_WITHIN_125 = 0.95, 0.55
NEAR = {"round_robin": (0.80, 0.83), "tokens": (0.72, 0.78)}
"""Below a load of 1, and from there on."""
COVERED, COVERED_THIRD = (0.85, 0.95), (0.80, 0.97)
COVERED_FIFO, COVERED_FIFO_THIRD = (0.80, 1.0), (0.70, 1.0)
"""From a load of 1 on: there the queue only grows, and its waits are known to a few per cent."""
WIDTH_MAX = 3.0
LARGEST_MAX = 3.0
ROUNDING = 0.005


def near_target(fairness: Fairness, load: float) -> float:
    """Return the share of promises that must be near."""
    return FIFO_WITHIN_2 if fairness == "fifo" else NEAR[fairness][load >= 1.0]


def target(fairness: Fairness, load: float, allowance: float = 0.0) -> str:
    """Say what is aimed at."""
    near = f"{near_target(fairness, load) - allowance:.0%}"
    return f"{near} / {FIFO_WITHIN_125 - allowance:.0%}" if fairness == "fifo" else near


def shortfalls(
    verdict: Verdict, fairness: Fairness, load: float, allowance: float = 0.0
) -> list[str]:
    """Name the targets that are missed by more than the allowance."""
    missed: list[str] = []
    slack = allowance + ROUNDING
    near = verdict.within_2 if fairness == "fifo" else verdict.near
    if near < near_target(fairness, load) - slack:
        missed.append("near")
    if fairness == "fifo" and verdict.within_125 < FIFO_WITHIN_125 - slack:
        missed.append("within 1.25")
    grows = fairness == "fifo" and load >= 1.0
    low, high = COVERED_FIFO if grows else COVERED
    if not low - slack <= verdict.covered <= high + slack:
        missed.append("covered")
    low, high = COVERED_FIFO_THIRD if grows else COVERED_THIRD
    if not all(low - slack <= part <= high + slack for part in verdict.thirds):
        missed.append("covered in each third")
    if verdict.width > WIDTH_MAX * (1.0 + allowance):
        missed.append("width")
    if verdict.largest > LARGEST_MAX:
        missed.append("largest promise")
    return missed
