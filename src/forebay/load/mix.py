"""Who asks, and how urgently: names with weights, drawn at random but repeatably."""

from __future__ import annotations

import math
import re
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct

from forebay.load.quantities import BadPlan

if TYPE_CHECKING:
    import random

NAMES_MAX = 1000
"""Each name has its own row of figures; more than this nobody reads."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


class Mix(Struct, frozen=True):
    """Names, and how often each is drawn in proportion to the others."""

    names: tuple[str, ...]
    weights: tuple[float, ...]

    def draw(self, source: random.Random) -> str:
        """Return one of the names."""
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
                f"{option}: {name!r} is no name. Write names of letters, digits and ._@+- "
                "with their weights: alice:1,bob:3"
            )
        if name in weights:
            raise BadPlan(f"{option}: {name} is there twice.")
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
