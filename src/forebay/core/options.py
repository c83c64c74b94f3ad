"""Options of the queue: the core's own value, never `Settings`."""

from collections.abc import Sequence
from math import inf
from typing import Literal

from msgspec import Struct, structs

FROZEN_WHILE_RUNNING = ("priorities", "class_order", "fairness", "when_full")


FINITE_MAX = 1e18
LIMITS = {"wait_s_max": inf, "aging_s": inf, "swap_wait_s": inf, "offline_wait_s": inf}
"""What may be as large as it likes; everything else is added up and must stay finite."""


class KeyLimits(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one API key may start; it waits for the rest. 0 is no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    tokens_per_day: int = 0

    def __bool__(self) -> bool:
        return bool(self.requests_per_minute or self.tokens_per_minute or self.tokens_per_day)


class Options(Struct, frozen=True, tag=True, gc=False):
    """The knobs of the scheduler. Defaults are those of the gateway."""

    enabled: bool = True
    max_size: int = 100
    """Requests that may wait; 0 turns waiting off."""
    bytes_max: int = 268_435_456
    """What the bodies of waiting requests may weigh together."""
    per_user_max: int = 0
    """Requests one user may have waiting; 0 is no limit of its own."""
    when_full: Literal["class", "displace", "reject"] = "class"
    """For whom one that waits makes room: those of a higher class; also users with fewer places;
    nobody."""
    wait_s_max: float = 60.0
    refuses_long_lines: bool = True
    """Whether one that would wait for over twice `wait_s_max` is refused at once."""
    queue_streams: bool = True
    """False refuses a stream that could not start at once."""

    priorities: tuple[str, ...] = ("high", "normal", "low")
    """Classes, most urgent first. One more level is one more name."""
    class_order: Literal["strict", "weighted"] = "strict"
    class_weights: dict[str, float] = {}
    """Shares in weighted order; a class not named has the default of its rank: 8, 4, 1, 1, ..."""
    aging_s: float = 0.0
    """An entry counts one class higher for each such interval waited; 0 never."""

    fairness: Literal["tokens", "round_robin", "fifo"] = "tokens"
    """What a start costs its user: tokens, 1, or nothing. Where requests cost alike, tokens are
    round robin; where they do not, who asks for little waits less beside who asks for much."""
    burst: float = 0.0
    """Head start of a returning user over the clock, in cost units over weight."""
    input_weight: float = 1.0
    output_weight: float = 2.0
    """An output token costs a step of its own, an input token shares one: twice is the usual."""
    output_tokens_unmeasured: int = 256
    """What an answer is taken to be while the lane has no median of its own."""

    swap_wait_s: float = 15.0
    """How long a cold lane yields to the model in memory, at least, unless it is its last call."""
    swap_share: float = 0.1
    """How much of a turn loading may take: a model serves for `load_s * (1 / share - 1)` before it
    is put out while someone waits for it. Above 0, at most 1."""
    offline_wait_s: float = 30.0
    """How long a node may be gone, or be on its way, before waiting for it makes no sense."""
    idle_users_max: int = 10_000
    """Idle users whose counters are remembered; the longest idle are forgotten first."""
    affinities_max: int = 10_000
    prefix_blocks: int = 5_000
    """Parts of prompts that a node is taken to have in its cache; 0 turns that off."""
    key_limits: dict[str, KeyLimits] = {}
    """The rates of the keys that have one, by `Arrived.key`."""

    def queue_burst(self) -> float:
        """Return the head start in force: where nothing is charged, nobody can be ahead."""
        return 0.0 if self.fairness == "fifo" else self.burst

    def normal_rank(self) -> int:
        """Return the rank of `normal`, or the middle where that name is not in the list."""
        if "normal" in self.priorities:
            return self.priorities.index("normal")
        return len(self.priorities) // 2

    def weight_of(self, rank: int) -> float:
        """Return the weight of the priority class at a rank, 0 being the most urgent."""
        default = (8.0, 4.0, 1.0)[rank] if rank < 3 else 1.0
        return self.class_weights.get(self.priorities[rank], default)

    def problems(self) -> list[str]:
        """Say what is wrong with these options, naming the field; empty when all is well."""
        found = [
            f"{name} must be a finite number, at least 0"
            for name, value in structs.asdict(self).items()
            if isinstance(value, int | float)
            and not 0 <= value <= LIMITS.get(name, FINITE_MAX)  # NaN is neither
        ]
        if not 0 < self.swap_share <= 1:
            found.append("swap_share must be a number above 0, and at most 1")
        if not self.priorities or len(set(self.priorities)) != len(self.priorities):
            found.append("priorities must be a list of different names, at least one")
        found += [
            f"class_weights.{name} must be above 0 and name one of priorities"
            for name, weight in self.class_weights.items()
            if name not in self.priorities or not weight > 0
        ]
        found += [
            f"key_limits.{name} must be finite numbers, at least 0"
            for name, limits in self.key_limits.items()
            if not all(0 <= count <= FINITE_MAX for count in structs.astuple(limits))
        ]
        return found


def parse_priority(text: str | None, priorities: Sequence[str] = ("high", "normal", "low")) -> str:
    """Return the class that a header asks for; case and blanks do not matter, nonsense is normal.

    >>> [parse_priority(text) for text in ("high", "HIGH", " High ", "low")]
    ['high', 'high', 'high', 'low']
    >>> [parse_priority(text) for text in ("", "urgent", None)]
    ['normal', 'normal', 'normal']
    """
    name = (text or "").strip().lower()
    known = {priority: priority for priority in priorities}
    return known.get(name, "normal")  # the same object for all, so that comparing them is quick


def capped_priority(asked: str, cap: str, priorities: Sequence[str]) -> str:
    """Return `asked`, but never one more urgent than `cap`.

    >>> capped_priority("high", "normal", ("high", "normal", "low"))
    'normal'
    """
    ranks = {name: rank for rank, name in enumerate(priorities)}
    return max(asked, cap, key=lambda name: ranks.get(name, 0))
