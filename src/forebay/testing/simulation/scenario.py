"""A whole scenario as one frozen value: nodes, clients, disturbances, options, duration.

Nothing here draws a random number or knows the scheduler's state; `Simulation` plays it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from forebay.core.options import Options
from forebay.testing.simulation.arrivals import Arrivals, Poisson
from forebay.testing.simulation.distributions import Always, Distribution, Exponential

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    starts_s: float = 0.0
    """When it answers for the first time; it is configured from the start."""


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
class Resized:
    """A node's slot count changes: lower drains, higher is used at once."""

    at_s: float
    node: str
    slots: int


@dataclass(frozen=True)
class Remodelled:
    """A node serves other models from now on."""

    at_s: float
    node: str
    models: tuple[str, ...]


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


Disturbance: TypeAlias = Outage | Resized | Remodelled | Removal | Reconfigured | Closing


@dataclass(frozen=True)
class Scenario:
    """Everything that happens, up to the seed."""

    nodes: tuple[NodePlan, ...]
    clients: tuple[ClientPlan, ...]
    options: Options = field(default=Options())
    duration_s: float = 60.0
    """When clients stop sending; what was accepted is still played to its end."""
    warmup_s: float = 0.0
    """Requests that arrive before this are left out of the report."""
    disturbances: tuple[Disturbance, ...] = ()
    attempts_max: int = 3
    """After so many failures before the first byte the edge gives up, as the gateway does."""
    probe_s: float = 10.0
    """Every node is probed, and reported, this often."""
    observe_s: float = 0.0
    """The whole picture is asked for, and checked, this often; 0 only at the end."""
    tick_late_s: Distribution = field(default=Always(0.0))
    """How late the timer fires: event loops stall."""
    late_rate: float = 0.0
    """How often a late event follows for a request that is over: networks repeat themselves."""
    name: str = ""
    """What to call it in a failure; `random_scenario` writes how to replay it."""
