"""How far the figures of two runs may differ by chance alone.

Requests of one run are not independent: they stood in the same line, so a bad minute is bad for all
of them, and the busier a server is the longer a bad minute lasts. So a run is cut into stretches
that are long against the time for which it remembers, and counts for no more evidence than there
are of these. The figure is computed again with each stretch left out (the block jackknife; Künsch,
"The jackknife and the bootstrap for general stationary observations", 1989), and the interval is
Student's, with the degrees of freedom of that few stretches (Welch's, for two runs). How long a run
remembers is the integrated autocorrelation time, with the window of Sokal, "Monte Carlo methods in
statistical mechanics", 1997; of two runs the longer one counts, since what is asked is whether
they could be runs of the same server. Where fewer than STRETCHES_MIN stretches fit into a run it
cannot know its own noise, and nothing is claimed: a line at 95 % load remembers for minutes.

It knows nothing of what differs from one run to another (other load on the machine, a cold cache).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import chain, pairwise
from operator import mul
from typing import Literal, TypeAlias

from forebay.load.statistics import percentile

Statistic: TypeAlias = Literal["p50", "p95", "mean", "sum"]
RANKS: dict[Statistic, int] = {"p50": 50, "p95": 95}
Cells: TypeAlias = list[list[float]]
"""What requests add to a figure, by the time at which they were due."""
CELLS = 200
"""In a run, of equal time; stretches are made of these."""
STRETCHES_MAX = 20
STRETCHES_MIN = 5
STRETCH_MEMORIES = 4.0
"""How many times the memory of a run a stretch is long. Simulated queues of a load of 30 to 95 %
were told apart from their like in about 5 of 100 pairs with 4, in up to 17 with 3, 25 with 2."""
WINDOW_MEMORIES = 5.0
"""How far correlation is summed: beyond that there is only its noise."""
ROUNDING = 1e-9
_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
               2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)  # fmt: skip


def stretches(a: Cells, b: Cells, statistic: Statistic) -> int:
    """Return how many independent stretches each run has; 0 where they are too few to tell noise.

    There must be something in both.
    """
    memory = max(_memory(a, statistic), _memory(b, statistic))
    count = min(STRETCHES_MAX, int(CELLS / (STRETCH_MEMORIES * memory)))
    return count if count >= STRETCHES_MIN else 0


def margin(a: Cells, b: Cells, statistic: Statistic, count: int) -> float:
    """Return by how much the difference may be off, in 95 of 100 cases, with so many stretches."""
    of_a, of_b = _variance(a, statistic, count), _variance(b, statistic, count)
    both = of_a + of_b
    if both <= 0:
        return 0.0
    freedom = (count - 1) * both**2 / (of_a**2 + of_b**2)
    return student_95(int(freedom + 1e-9)) * math.sqrt(both)


def student_95(freedom: int) -> float:
    """Return the bound that Student's t keeps within in 95 of 100 cases.

    >>> student_95(1), student_95(4), round(student_95(30), 2)
    (12.706, 2.776, 2.04)
    """
    if freedom <= len(_STUDENT_95):
        return _STUDENT_95[max(1, freedom) - 1]
    return 1.96 + 2.45 / freedom


# -- inside


def _memory(cells: Cells, statistic: Statistic) -> float:
    """Return for how many cells a run remembers: 1 where each is news."""
    line = _deviations(cells, statistic)
    power = math.fsum(value * value for value in line)
    memory = 1.0
    if power <= 0:
        return memory
    for lag in range(1, len(line) // 2):
        memory += 2 * math.fsum(map(mul, line, line[lag:])) / power
        if lag >= WINDOW_MEMORIES * memory:
            break
    return max(1.0, memory)


def _deviations(cells: Cells, statistic: Statistic) -> list[float]:
    """Return how far each cell is from the usual; of percentiles by ranks, which have no tail."""
    if statistic == "sum":
        sums = [math.fsum(cell) for cell in cells]
        usual = math.fsum(sums) / len(sums)
        return _exact([one - usual for one in sums], max(map(abs, sums)))
    values = sorted(chain.from_iterable(cells))
    if statistic == "mean":
        usual = math.fsum(values) / len(values)
        found = [math.fsum(cell) - usual * len(cell) for cell in cells]
        return _exact(found, max(abs(values[0]), abs(values[-1])))
    ranks = {
        value: bisect_left(values, value) + bisect_right(values, value) - len(values)
        for value in set(values)
    }
    return [float(sum(ranks[value] for value in cell)) for cell in cells]


def _exact(deviations: list[float], scale: float) -> list[float]:
    """Return them without the rounding of floating point, which would be taken for a memory."""
    return [0.0 if abs(one) < ROUNDING * scale else one for one in deviations]


def _variance(cells: Cells, statistic: Statistic, count: int) -> float:
    """Return the variance of a figure, as the block jackknife has it."""
    edges = [i * len(cells) // count for i in range(count + 1)]
    parts = [sorted(chain.from_iterable(cells[start:end])) for start, end in pairwise(edges)]
    weight = count / (count - 1) if statistic == "sum" else 1.0  # for the stretch left out
    found = []
    for i in range(count):
        rest = list(chain.from_iterable(parts[:i] + parts[i + 1 :]))
        if rest:
            found.append(_figure(rest, statistic) * weight)
    mean = math.fsum(found) / len(found)
    return (count - 1) / count * math.fsum((one - mean) ** 2 for one in found)


def _figure(values: list[float], statistic: Statistic) -> float:
    if statistic in ("mean", "sum"):
        return math.fsum(values) / (len(values) if statistic == "mean" else 1)
    values.sort()  # of sorted pieces, so this only merges
    return percentile(values, RANKS[statistic])
