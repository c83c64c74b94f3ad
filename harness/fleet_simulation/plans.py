"""What a simulated fleet is like and what befalls it: drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from forebay.core import Options

FaultKind: TypeAlias = Literal[
    "kill",  # a replica, at once; it comes back under another member id
    "freeze",  # a replica: its clock goes on, its steps stop
    "partition",  # a replica from the store; the others answer it
    "isolate",  # a replica from the store and from the others
    "retire",  # a replica resigns, drains, leaves and comes back
    "store_down",  # refuses connections, keeps its data
    "store_paused",  # answers nobody; what was sent is carried out later
    "store_slow",  # every call takes longer than it may, and is carried out all the same
    "store_emptied",  # comes back without any data
    "failover",  # comes back without its last second
]
SLOW_FAULT = 0.3
"""The part of worlds in which the store is slow for a while, whatever else goes wrong."""
REPLICA_FAULTS: tuple[FaultKind, ...] = ("kill", "freeze", "partition", "isolate", "retire")
DRAWN_STORE_FAULTS: tuple[FaultKind, ...] = (
    "store_down", "store_paused", "store_emptied", "failover",
)  # fmt: skip
STORE_FAULTS = (*DRAWN_STORE_FAULTS, "store_slow")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    kind: FaultKind
    for_s: float
    replica: int = 0
    """Which one; -1 is whoever leads then."""


@dataclass(frozen=True)
class Resize:
    """A node's slots change; every replica sees it at its next probe."""

    at_s: float
    node: str
    slots: int


@dataclass(frozen=True)
class FleetPlan:
    """One world."""

    seed: int
    replicas: int = 2
    lease_s: float = 5.0
    nodes: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Slots and models of each."""
    options: Options = Options()  # noqa: RUF009  # a frozen struct
    arrivals_per_s: float = 4.0
    duration_s: float = 40.0
    service_s: float = 1.0
    users: int = 3
    delay_s: float = 0.001
    loss: float = 0.0
    drops: float = 0.0
    """The part of messages that are gone before they are read."""
    drift: float = 0.0
    """How much the clocks' rates may differ from 1."""
    trouble: float = 0.0
    """The part of attempts that fail, of either kind."""
    leaves: float = 0.0
    """The part of clients that give up early."""
    hurried: float = 0.0
    """The part of requests that start at once or not at all."""
    twins: float = 0.0
    """The part of requests whose id another replica has in use, too."""
    reused: float = 0.0
    """The part of requests whose id the same replica had in use a moment ago."""
    faults: tuple[Fault, ...] = ()
    resizes: tuple[Resize, ...] = ()


def random_plan(seed: int) -> FleetPlan:
    """Return a world with faults: the same for the same seed."""
    random = Random(f"fleet/{seed}")
    lease_s = random.choice((2.0, 3.0, 5.0))
    duration_s = random.uniform(25.0, 60.0)
    models = ("llama", "qwen")[: random.randint(1, 2)]
    nodes = {
        f"gpu{n}": (random.choice((1, 2, 4, 8)), random.choice((models, models[:1], models)))
        for n in range(random.randint(1, 3))
    }
    if any(model not in served for model in models for _, served in nodes.values()):
        nodes["gpu0"] = (nodes["gpu0"][0], models)
    slots = sum(count for count, _ in nodes.values())
    service_s = random.choice((0.3, 1.0, 3.0))
    replicas = random.randint(2, 5)
    return FleetPlan(
        seed=seed,
        replicas=replicas,
        lease_s=lease_s,
        nodes=nodes,
        options=_random_options(random),
        arrivals_per_s=min(30.0, random.choice((0.3, 0.8, 1.2, 2.0)) * slots / service_s),
        duration_s=duration_s,
        service_s=service_s,
        users=random.randint(1, 4),
        delay_s=random.choice((0.0002, 0.001, 0.01)),
        loss=random.choice((0.0, 0.0, 0.01)),
        drops=random.choice((0.0, 0.0, 0.01)),
        drift=random.choice((0.0, 0.01)),
        trouble=random.choice((0.0, 0.05, 0.15)),
        leaves=random.choice((0.0, 0.1)),
        hurried=Random(f"fleet/{seed}/hurried").choice((0.0, 0.1, 0.4)),
        twins=random.choice((0.0, 0.2)),
        reused=Random(f"fleet/{seed}/reused").choice((0.0, 0.2)),
        faults=(
            *_random_faults(random, replicas, lease_s, duration_s),
            *_random_slowness(Random(f"fleet/{seed}/slow"), lease_s, duration_s),
        ),
        resizes=_random_resizes(random, nodes, duration_s),
    )


def _random_options(random: Random) -> Options:
    return Options(
        max_size=random.choice((3, 20, 100)),
        wait_s_max=random.choice((6.0, 20.0)),
        fairness=random.choice(("round_robin", "fifo")),
        when_full=random.choice(("class", "displace", "reject")),
    )


def _random_faults(
    random: Random, replicas: int, lease_s: float, duration_s: float
) -> tuple[Fault, ...]:
    """Draw faults one after the other, sometimes one on top of the other."""
    faults = []
    at_s = random.uniform(2.0, 8.0)
    while at_s < duration_s:
        kind = random.choice(DRAWN_STORE_FAULTS if random.random() < 0.3 else REPLICA_FAULTS)
        for_s = random.choice((0.3, 0.8, 1.5, 3.0)) * lease_s * random.uniform(0.5, 1.0)
        replica = random.choice((-1, random.randrange(replicas)))
        faults.append(Fault(at_s, kind, for_s, replica))
        at_s += for_s + random.choice((0.0, 1.0, 3.0)) * lease_s
    return tuple(faults)


def _random_slowness(random: Random, lease_s: float, duration_s: float) -> tuple[Fault, ...]:
    if random.random() >= SLOW_FAULT:
        return ()
    for_s = random.choice((0.8, 1.5, 3.0)) * lease_s
    return (Fault(random.uniform(2.0, duration_s), "store_slow", for_s),)


def _random_resizes(
    random: Random, nodes: dict[str, tuple[int, tuple[str, ...]]], duration_s: float
) -> tuple[Resize, ...]:
    return tuple(
        Resize(random.uniform(2.0, duration_s), name, random.choice((1, slots, 2 * slots)))
        for name, (slots, _) in nodes.items()
        if random.random() < 0.3
    )
