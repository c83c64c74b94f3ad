"""A whole scenario as one frozen value: nodes, clients, disturbances, options, duration.

Random quantities are values as well: a scenario names a distribution, a seed draws from it. Service
times of language models are long-tailed, which is why `Lognormal` is here beside the exponential of
queueing theory. Nothing here knows the scheduler's state; `Simulation` plays it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from forebay.core.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    from forebay.core.events import Arrived

# -- random quantities


class Distribution(Protocol):
    """Anything that can be drawn from."""

    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True)
class Always:
    """The same value every time."""

    value: float

    def draw(self, random: Random) -> float:
        return self.value


@dataclass(frozen=True)
class Uniform:
    """Anything between two values, each as likely."""

    low: float
    high: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True)
class Exponential:
    """Memoryless: what is left does not depend on what has passed."""

    mean_value: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1.0 / self.mean_value)


@dataclass(frozen=True)
class Lognormal:
    """Long-tailed: given by its median and the spread `sigma` of its logarithm."""

    median: float
    sigma: float

    def draw(self, random: Random) -> float:
        return random.lognormvariate(log(self.median), self.sigma)


@dataclass(frozen=True)
class Mixture:
    """One of several values by weight: short questions and the odd long document."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def draw(self, random: Random) -> float:
        return random.choices(self.values, self.weights)[0]


# -- when a client sends: open processes that do not care about answers, and a closed one that does


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals at a steady rate."""

    rate_per_s: float

    def times(self, random: Random) -> Iterator[float]:
        at_s = 0.0
        while True:
            at_s += random.expovariate(self.rate_per_s)
            yield at_s


@dataclass(frozen=True)
class Bursts:
    """`size` arrivals in the same instant, again and again: an agent that fires twenty at once."""

    size: int
    every_s: Distribution

    def times(self, random: Random) -> Iterator[float]:
        at_s = 0.0
        while True:
            for _ in range(self.size):
                yield at_s
            at_s += self.every_s.draw(random)


@dataclass(frozen=True)
class Times:
    """Exactly these times: a recorded trace, or a test that means one moment."""

    at_s: tuple[float, ...]

    def times(self, random: Random) -> Iterator[float]:
        yield from sorted(self.at_s)


@dataclass(frozen=True)
class Backlog:
    """Closed loop: always `depth` unfinished; the next comes `think_s` after one ended."""

    depth: int
    think_s: Distribution = field(default=Always(0.0))


Arrivals: TypeAlias = Poisson | Bursts | Times | Backlog


# -- who takes part, and what befalls them


@dataclass(frozen=True)
class NodePlan:
    """One backend server and how it behaves. Rates are probabilities per attempt."""

    name: str
    slots: int = 1
    models: tuple[str, ...] = ("m",)
    families: tuple[str, ...] = ("openai",)
    service_s: Distribution = field(default=Exponential(1.0))
    """How long one answer takes, loading aside."""
    service_s_by_model: Mapping[str, Distribution] = field(default_factory=dict)
    """Where a model differs from `service_s`."""
    token_s: float = 0.0
    """Added to the service time for each output token."""
    first_byte_share: float = 0.2
    """After which share of the service time the first byte is sent."""
    fail_before_rate: float = 0.0
    """Fails before the first byte: the request goes back to the line, this node excluded."""
    fail_after_rate: float = 0.0
    """Breaks off in mid-answer: not retried, the partial answer is charged."""
    busy_rate: float = 0.0
    """Says 429: the request goes back, the node rests `rest_s` with one slot fewer."""
    rest_s: float = 1.0
    swaps: bool = False
    """Whether models are loaded on demand; False holds all of them at once."""
    loaded: tuple[str, ...] = ()
    """What is in memory at the start; only with `swaps`."""
    loaded_max: int = 1
    load_s: float = 0.0
    tells_loads: bool = True
    """Whether it says what it has in memory and how long a load takes; else that is guessed."""
    starts_s: float = 0.0
    """When it answers for the first time; it is configured from the start."""
    slowness: float = 1.0
    """Multiplies the times of recorded requests."""


@dataclass(frozen=True)
class ClientPlan:
    """One user's traffic. Rates are probabilities per request."""

    user: str
    arrivals: Arrivals = field(default=Poisson(1.0))
    count_max: int = 1_000_000
    """Sends no more than this many."""
    weight: float = 1.0
    models: Mapping[str, float] = field(default_factory=lambda: {"m": 1.0})
    """Models asked for, by weight."""
    cycle_models: bool = False
    """Ask for the models in turn (A B C A B C) instead of by weight."""
    families: Mapping[str, float] = field(default_factory=lambda: {"openai": 1.0})
    priorities: Mapping[str, float] = field(default_factory=lambda: {"normal": 1.0})
    prompt_tokens: Distribution = field(default=Always(100))
    output_tokens: Distribution = field(default=Always(100))
    """What the answer really costs; the scheduler learns it at the end."""
    output_limit: int = 0
    """The cap that is sent along; 0 sends none. Answers are never longer."""
    size_bytes: Distribution = field(default=Always(400))
    key: str = ""
    key_running_max: int = 0
    max_wait_s: Distribution | None = None
    """The client's own limit on waiting, sent with a share `max_wait_rate` of its requests."""
    max_wait_rate: float = 1.0
    patience_s: Distribution = field(default=Exponential(5.0))
    cancel_rate: float = 0.0
    """Gives up after `patience_s` of waiting."""
    vanish_rate: float = 0.0
    """Goes away while the answer is running."""
    vanish_on_grant_rate: float = 0.0
    """Goes away in the instant of the grant."""
    revoke_rate: float = 0.0
    """Is stopped by somebody else after `patience_s`, waiting or running."""
    inspect_rate: float = 0.0
    """Asks about its ticket after `patience_s`."""
    stream_rate: float = 0.0
    job_rate: float = 0.0
    """Is background work: outside the key's cap, no limit on waiting."""
    affinity_rate: float = 0.0
    conversations: int = 1
    """Its requests belong to one of so many; one is not named."""


class Recorded(NamedTuple):
    """One request of a recording, and what becomes of it."""

    at_s: float
    arrived: Arrived
    service_s: float
    """How long it takes on a node of usual speed, its model being loaded."""
    output_tokens: int
    leaves_after_s: float | None = None
    """Its client gives up waiting after this."""
    leaves_running: bool = False
    """It does so, too, when the answer is on its way."""


@dataclass(frozen=True)
class Outage:
    """A node leaves for a while. Offline kills what runs there; draining and loading do not."""

    at_s: float
    node: str
    for_s: float
    state: Literal["offline", "draining", "loading"] = "offline"
    seen: bool = True
    """Whether the scheduler is told at once; else the next probe finds a dead node."""


@dataclass(frozen=True)
class Changed:
    """A node has other slots (fewer drain, more are used at once) or serves other models."""

    at_s: float
    node: str
    slots: int | None = None
    models: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Removal:
    """A node leaves the configuration; what runs there ends well."""

    at_s: float
    node: str


@dataclass(frozen=True)
class Reconfigured:
    """The operator changes limits."""

    at_s: float
    options: Options


@dataclass(frozen=True)
class Closing:
    """The gateway is told to stop."""

    at_s: float


Disturbance: TypeAlias = Outage | Changed | Removal | Reconfigured | Closing


@dataclass(frozen=True)
class Scenario:
    """Everything that happens, up to the seed."""

    nodes: tuple[NodePlan, ...]
    clients: tuple[ClientPlan, ...]
    options: Options = field(default=Options())
    duration_s: float = 60.0
    """When clients stop sending; what was accepted is still played to its end."""
    recording: Iterable[Recorded] = ()
    """Traffic as it was once, in order of arrival; taken as it is played, so it may be long."""
    disturbances: tuple[Disturbance, ...] = ()
    attempts_max: int = 3
    """After so many failures before the first byte the edge gives up, as the gateway does."""
    probe_s: float = 10.0
    """Every node is probed, and reported, this often; `inf` never."""
    observe_s: float = 0.0
    """The whole picture is asked for, and checked, this often; 0 only at the end."""
    tick_late_s: Distribution = field(default=Always(0.0))
    """How late the timer fires: event loops stall."""
    late_rate: float = 0.0
    """How often a late event follows for a request that is over: networks repeat themselves."""
    name: str = ""
    """What to call it in a failure; `random_scenario` writes how to replay it."""
