"""Random scenarios by the thousand: options, nodes, clients and disturbances all drawn.

Small on purpose (a hundred to three hundred steps): mistakes in a scheduler show in small, odd
worlds, and small worlds are quick to play and quick to read. Each scenario draws which features it
has before it draws their numbers, so that many have few features and some have all of them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from msgspec import structs

from forebay.core.options import KeyLimits, Options
from forebay.testing.simulation.scenario import (
    Always,
    Arrivals,
    Backlog,
    Bursts,
    Changed,
    ClientPlan,
    Closing,
    Distribution,
    Disturbance,
    Exponential,
    Lognormal,
    Mixture,
    NodePlan,
    Outage,
    Poisson,
    Reconfigured,
    Removal,
    Scenario,
    Uniform,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MODELS = ("a", "b", "c", "d")
FAMILIES = ("openai", "anthropic")
DURATION_S = 30.0
RATES_SHARE = 0.3
ARRIVALS_AIM = 50
"""About how many requests a scenario sends; each makes three to five steps."""


def random_scenario(seed: int) -> Scenario:
    """Draw a whole scenario; the same seed draws the same one.

    >>> random_scenario(3) == random_scenario(3)
    True
    """
    scenario = _Draw(Random(f"{seed}/scenario")).scenario(f"make sim SEED={seed}")
    scenario = _with_conversations(scenario, Random(f"{seed}/conversations"))
    return _with_rates(scenario, Random(f"{seed}/rates"))


def _with_conversations(scenario: Scenario, random: Random) -> Scenario:
    """Let half of the clients hold several conversations at once."""
    clients = [
        replace(client, conversations=random.choice((1, 1, 2, 5))) for client in scenario.clients
    ]
    return replace(scenario, clients=tuple(clients))


def _with_rates(scenario: Scenario, random: Random) -> Scenario:
    """Give some clients of some scenarios a key with limits, which their jobs count towards."""
    if random.random() >= RATES_SHARE:
        return scenario
    limits = {
        name: KeyLimits(random.choice((0, 12, 30, 60)), random.choice((0, 0, 0, 9000)))
        for name in ("paced-1", "paced-2")
    }
    clients = tuple(
        replace(client, key=random.choice((*limits, client.key)), key_running_max=0)
        if not client.key
        else client
        for client in scenario.clients
    )
    options = structs.replace(scenario.options, key_limits=limits)
    return replace(scenario, options=options, clients=clients)


class _Draw:
    """Draws the parts of one scenario, which have to fit each other."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.models = MODELS[: random.randint(1, 4)]
        self.families = FAMILIES[: random.choice((1, 1, 2))]
        self.served = self.models
        self.key_cap = random.choice((0, 1, 4))
        self.faults = self.chance(0.6)
        self.swaps = self.chance(0.3)

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    def scenario(self, name: str) -> Scenario:
        random = self.random
        options = self.options()
        nodes = tuple(self.node(f"n{number}") for number in range(random.choice((1, 1, 2, 2, 3))))
        self.served = tuple(sorted({model for node in nodes for model in node.models}))
        clients = self.clients(options)
        disturbances = self.disturbances(options, nodes) if self.faults else ()
        if self.chance(0.2):
            nodes = tuple(replace(node, starts_s=self.start_s()) for node in nodes)
        return Scenario(
            nodes=nodes,
            clients=clients,
            options=options,
            duration_s=DURATION_S,
            disturbances=disturbances,
            attempts_max=random.choice((1, 3, 3, 5)),
            probe_s=random.choice((3.0, 10.0)),
            observe_s=random.choice((2.0, 10.0)),
            tick_late_s=Exponential(0.5) if self.chance(0.4) else Always(0.0),
            late_rate=0.2 if self.chance(0.3) else 0.0,
            name=name,
        )

    # Options

    def options(self) -> Options:
        random = self.random
        small = self.chance(0.5)
        return Options(
            enabled=not self.chance(0.05),
            max_size=random.choice((0, 1, 2, 5, 10)) if small else 100,
            bytes_max=random.choice((800, 2000, 10_000)) if self.chance(0.2) else 268_435_456,
            per_user_max=random.choice((1, 3, 5)) if self.chance(0.3) else 0,
            when_full=random.choice(("class", "displace", "reject")),
            wait_s_max=random.choice((0.0, 0.5, 2.0, 10.0, 60.0, 60.0)),
            queue_streams=not self.chance(0.2),
            priorities=random.choice(
                (("high", "normal", "low"), ("urgent", "high", "normal", "low"), ("normal",))
            ),
            class_order=random.choice(("strict", "strict", "weighted")),
            aging_s=random.choice((0.5, 3.0)) if self.chance(0.25) else 0.0,
            fairness=random.choice(("round_robin", "tokens", "fifo")),
            burst=random.choice((0.0, 1.0, 500.0)),
            swap_wait_s=random.choice((0.0, 2.0, 10.0)),
            offline_wait_s=random.choice((0.0, 2.0, 10.0, 30.0)),
            idle_users_max=random.choice((0, 1, 10_000)),
            affinities_max=random.choice((0, 1, 10_000)),
        )

    # Nodes

    def node(self, name: str) -> NodePlan:
        random = self.random
        models = tuple(random.sample(self.models, random.randint(1, len(self.models))))
        swaps = self.swaps and self.chance(0.8)
        loaded_max = random.choice((1, 1, 2))
        return NodePlan(
            name=name,
            slots=random.choice((1, 1, 2, 4)),
            models=models,
            families=self.families[:1] if self.chance(0.2) else self.families,
            service_s=self.service(),
            service_s_by_model={models[0]: self.service()} if self.chance(0.3) else {},
            token_s=random.choice((0.0, 0.0, 0.005)),
            fail_before_rate=random.choice((0.0, 0.1, 0.4)) if self.faults else 0.0,
            fail_after_rate=random.choice((0.0, 0.1)) if self.faults else 0.0,
            busy_rate=random.choice((0.0, 0.2)) if self.faults else 0.0,
            rest_s=random.choice((0.1, 1.0, 5.0)),
            swaps=swaps,
            loaded=models[: random.randint(0, loaded_max)] if swaps else (),
            loaded_max=loaded_max,
            load_s=random.choice((0.0, 0.5, 2.0)),
        )

    def start_s(self) -> float:
        return self.random.choice((0.0, 1.0, 8.0, 1000.0))

    def service(self) -> Distribution:
        mean_s = self.random.choice((0.2, 1.0, 2.0))
        return self.random.choice(
            (Always(mean_s), Exponential(mean_s), Lognormal(mean_s, 0.8), Uniform(0.0, 2 * mean_s))
        )

    # Clients

    def clients(self, options: Options) -> tuple[ClientPlan, ...]:
        number = self.random.randint(1, 5)
        plans = [self.client(f"u{index}", number, options) for index in range(number)]
        return tuple(self.with_faults(plan) for plan in plans)

    def client(self, user: str, clients: int, options: Options) -> ClientPlan:
        random = self.random
        asked = [*options.priorities, "nonsense"]
        return ClientPlan(
            user=user,
            arrivals=self.arrivals(ARRIVALS_AIM / clients),
            count_max=3 * ARRIVALS_AIM // clients,
            weight=random.choice((1.0, 1.0, 1.0, 2.0, 0.5)),
            models=self.mix((*self.served, "unknown") if self.chance(0.1) else self.served),
            families=self.mix(self.families),
            priorities=self.mix(tuple(asked)),
            prompt_tokens=random.choice(
                (Always(100), Uniform(1, 500), Mixture((50, 4000), (9, 1)))
            ),
            output_tokens=random.choice((Always(100), Exponential(200))),
            output_limit=random.choice((0, 0, 100)),
            size_bytes=random.choice((Always(400), Uniform(1, 2000))),
            key="key" if self.chance(0.2) else "",
            key_running_max=self.key_cap,
            max_wait_s=Mixture((0.0, 1.0, 5.0, 100.0), (1, 3, 3, 1)) if self.chance(0.3) else None,
            max_wait_rate=0.5,
            stream_rate=random.choice((0.0, 0.5)),
            job_rate=random.choice((0.0, 0.0, 0.2, 1.0)),
            affinity_rate=random.choice((0.0, 0.5)),
            inspect_rate=random.choice((0.0, 0.2)),
        )

    def with_faults(self, plan: ClientPlan) -> ClientPlan:
        """Make a client one that comes and goes as it pleases."""
        random = self.random
        return replace(
            plan,
            key_running_max=plan.key_running_max if plan.key else 0,
            patience_s=random.choice((Always(0.0), Exponential(1.0), Exponential(5.0))),
            cancel_rate=random.choice((0.0, 0.1, 0.5)),
            vanish_rate=random.choice((0.0, 0.1, 0.5)),
            vanish_on_grant_rate=random.choice((0.0, 0.0, 0.2)),
            revoke_rate=random.choice((0.0, 0.0, 0.1)),
        )

    def arrivals(self, aim: float) -> Arrivals:
        random = self.random
        size = random.choice((3, 10, 20))
        return random.choice(
            (
                Poisson(aim / DURATION_S),
                Poisson(aim / DURATION_S),
                Bursts(size, Exponential(DURATION_S * size / aim)),
                Backlog(random.choice((1, 3, 8)), Exponential(1.0)),
            )
        )

    def mix(self, names: tuple[str, ...]) -> Mapping[str, float]:
        random = self.random
        kept = random.sample(names, random.randint(1, len(names)))
        return {name: random.choice((1.0, 1.0, 5.0)) for name in kept}

    # Disturbances

    def disturbances(
        self, options: Options, nodes: tuple[NodePlan, ...]
    ) -> tuple[Disturbance, ...]:
        random = self.random
        found: list[Disturbance] = []
        for _ in range(random.randint(0, 4)):
            node, at_s = random.choice(nodes), random.uniform(0.0, DURATION_S)
            found.append(self.disturbance(at_s, node))
        if self.chance(0.15):
            at_s = random.uniform(0.0, DURATION_S)
            found.append(Reconfigured(at_s, self.changed(options)))
        if self.chance(0.1):
            found.append(Closing(random.uniform(0.0, DURATION_S)))
        return tuple(found)

    def disturbance(self, at_s: float, node: NodePlan) -> Disturbance:
        random = self.random
        kind = random.choice(("offline", "offline", "draining", "loading", "size", "models", "go"))
        match kind:
            case "offline":
                for_s = random.choice((0.5, 5.0, 20.0))
                return Outage(at_s, node.name, for_s, seen=self.chance(0.7))
            case "draining":
                return Outage(at_s, node.name, 5.0, "draining")
            case "loading":
                return Outage(at_s, node.name, 5.0, "loading")
            case "size":
                return Changed(at_s, node.name, random.choice((0, 1, 2, 6)))
            case "models":
                models = tuple(random.sample(self.models, random.randint(1, len(self.models))))
                return Changed(at_s, node.name, models=models)
            case _:
                return Removal(at_s, node.name)

    def changed(self, options: Options) -> Options:
        """Draw other limits; what is frozen while running stays."""
        other = self.options()
        return Options(
            **{
                **{name: getattr(other, name) for name in options.__struct_fields__},
                "priorities": options.priorities,
                "class_order": options.class_order,
                "aging_s": options.aging_s,  # who waits already keeps the age it was given
                "class_weights": options.class_weights,
                "fairness": options.fairness,
                "when_full": options.when_full,
            }
        )
