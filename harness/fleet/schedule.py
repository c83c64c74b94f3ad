"""Faults drawn from a seed: what happens, to whom, when, and how long it lasts."""

import random
from typing import Literal, TypeAlias

from msgspec import Struct

from harness.fleet.journal import Window

Kind: TypeAlias = Literal[
    "kill",  # a gateway, with SIGKILL; it is started again
    "freeze",  # a gateway, with SIGSTOP past its lease; it goes on
    "cut",  # a gateway from the store, silently
    "refuse",  # a gateway from the store, with a reset
    "kill_store",  # and start it again, empty
    "pause_store",  # SIGSTOP: connections stay, nothing is answered
    "flush_scripts",  # SCRIPT FLUSH: what was loaded is gone
    "drop_clients",  # CLIENT KILL TYPE normal: every connection of every gateway ends
    "slow_store",  # every byte takes its time
]
KINDS: tuple[Kind, ...] = (
    "kill", "freeze", "cut", "refuse", "kill_store", "pause_store", "flush_scripts",
    "drop_clients", "slow_store",
)  # fmt: skip
OF_ONE: tuple[Kind, ...] = ("kill", "freeze", "cut", "refuse")
"""Those that befall one gateway."""
SUDDEN: tuple[Kind, ...] = ("flush_scripts", "drop_clients")
"""Those that need no cure."""
LEADER = 0
"""As a target: whoever leads then."""
SLOW_S = 0.15
"""More than a gateway waits for the store, so that it must do without."""


class Fault(Struct, frozen=True):
    """One thing that goes wrong, once; times are seconds from the start."""

    at_s: float
    kind: Kind
    target: int
    """The number of a gateway, LEADER, or -1 for the store."""
    for_s: float
    """How long until it is cured."""


def random_schedule(
    seed: int, gateways: int, lease_s: float, faults: int, kinds: tuple[Kind, ...] = KINDS
) -> tuple[Fault, ...]:
    """Draw a schedule: one fault at a time, each cured, and time to recover after each.

    What lasts does so from a moment to three leases, so that some are over before anyone has
    noticed, and others are noticed by everyone.
    """
    draw = random.Random(f"fleet {seed}")
    at_s, drawn = lease_s, []
    for _ in range(faults):
        kind = draw.choice(kinds)
        target = draw.choice([LEADER, *range(1, gateways + 1)]) if kind in OF_ONE else -1
        for_s = 0.0 if kind in SUDDEN else draw.uniform(0.2, 3.0) * lease_s
        drawn.append(Fault(round(at_s, 3), kind, target, round(for_s, 3)))
        at_s += for_s + recovery_s(lease_s) + draw.uniform(1.0, 2.0) * lease_s
    return tuple(drawn)


def recovery_s(lease_s: float) -> float:
    """Return how long after its cure a fault may still be felt: two leases, and a look around."""
    return 2.0 * lease_s + 1.5


def length_s(schedule: tuple[Fault, ...], lease_s: float) -> float:
    """Return when all is over: after the last recovery, and a calm in which all must be well."""
    ends = [fault.at_s + fault.for_s for fault in schedule]
    return max(ends, default=0.0) + recovery_s(lease_s) + 2.0 * lease_s


def windows_of(happened: list[tuple[Fault, float, float]], lease_s: float) -> list[Window]:
    """Return the times in which faults and recoveries were, from when each began and was cured."""
    return [
        Window(began_s, cured_s + recovery_s(lease_s), f"{fault.kind} {fault.target}")
        for fault, began_s, cured_s in happened
    ]
