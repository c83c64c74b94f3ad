"""Real gateways under load: one without a store beside 1, 2 and 4 that share one.

All gateways of a run share core 0, the load, the node and the store core 1, as in `bench.gateway`:
so what N gateways do together is what N gateways can do *on one core*. What a fleet can do on cores
of its own is in the calls for each CPU second.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from bench.fleet.store_use import Meter
from bench.gateway import unary
from bench.gateway.gateways import COMPILED, Gateway, Place, forebay
from bench.gateway.stage import Bench, Target, running, unary_node
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 32


@dataclass
class Fleet:
    """Gateways that share a queue, or one that does not."""

    name: str
    replicas: int
    shared: bool
    compiled: bool
    targets: list[Target] = field(default_factory=list)
    meter: Meter | None = None


def fleets(counts: tuple[int, ...], *, compiled: bool) -> list[Fleet]:
    """Return one without a store and those with one, plain or compiled."""
    kind = "compiled" if compiled else "plain"
    alone = Fleet(f"1 without a store, {kind}", 1, shared=False, compiled=compiled)
    others = [Fleet(f"{n} with a store, {kind}", n, True, compiled) for n in counts]
    return [alone, *others]


@contextmanager
def started(bench: Bench, of: list[Fleet], node: Target, slots: int) -> Iterator[None]:
    """Run all gateways of all fleets, each fleet with a store of its own."""
    with ExitStack() as stack:
        for fleet in of:
            url = ""
            if fleet.shared:
                server = stack.enter_context(ValkeyServer())
                url, fleet.meter = server.url, Meter(server.url)
                stack.callback(fleet.meter.close)
            gateways = [_gateway(fleet, number, url) for number in range(fleet.replicas)]
            fleet.targets = stack.enter_context(running(bench, gateways, node, slots))
        yield


def _gateway(fleet: Fleet, number: int, url: str) -> Gateway:
    def command(place: Place) -> list[str]:
        words = forebay(place)
        if url:
            path = place.folder / "forebay.toml"
            path.write_text(path.read_text() + f'[coordination]\nurl = "{url}"\n')
        return words

    variables = {"PYTHONPATH": str(COMPILED)} if fleet.compiled else {}
    name = f"{fleet.name} {number + 1}".replace(",", "").replace(" ", "-")
    return Gateway(name, command, queues=True, variables=variables)


def closed_loop(bench: Bench, of: list[Fleet], rounds: int, seconds: float) -> dict[str, object]:
    """Take turns, round by round; a ratio is to the one without a store in the same round."""
    taken: dict[str, list[dict[str, float]]] = {fleet.name: [] for fleet in of}
    for fleet in of:
        _together(bench, fleet, 1.0)  # warm, and not counted
    for _ in range(rounds):
        for fleet in of:
            taken[fleet.name].append(_together(bench, fleet, seconds))
    reference = taken[of[0].name]
    return {name: _summary(figures, reference) for name, figures in taken.items()}


def _together(bench: Bench, fleet: Fleet, seconds: float) -> dict[str, float]:
    """Load all gateways of a fleet at the same time."""
    if len(fleet.targets) < fleet.replicas:
        raise SystemExit(f"{fleet.name} did not start: {bench.refused}")
    before = fleet.meter.read() if fleet.meter else {}
    each = CONNECTIONS // fleet.replicas
    with ThreadPoolExecutor(fleet.replicas) as pool:
        parts = list(
            pool.map(lambda target: unary.wrk(bench, target, seconds, each), fleet.targets)
        )
    after = fleet.meter.read() if fleet.meter else {}
    calls = sum(one["per_second"] for one in parts)
    cpu = sum(one["core_busy"] for one in parts)
    done = calls * seconds
    asked = {f"store_{name}": (after[name] - before[name]) / done for name in after if done}
    return {
        "per_second": calls,
        "per_cpu_s": calls / cpu if cpu else 0.0,
        "errors": sum(one["errors"] for one in parts),
        **asked,
    }


def _summary(
    figures: list[dict[str, float]], reference: list[dict[str, float]]
) -> dict[str, object]:
    pairs = list(zip(figures, reference, strict=True))
    return {
        "per_second": median(one["per_second"] for one in figures),
        "per_cpu_s": median(one["per_cpu_s"] for one in figures),
        "ratio": median(a["per_second"] / b["per_second"] for a, b in pairs),
        "cpu_ratio": median(a["per_cpu_s"] / b["per_cpu_s"] for a, b in pairs),
        "errors": sum(one["errors"] for one in figures),
        "rounds": figures,
    }


def measure(bench: Bench, of: list[Fleet], rounds: int, seconds: float) -> dict[str, object]:
    """Slots for all clients, then for half."""
    found: dict[str, object] = {}
    with unary_node(bench) as node:
        with started(bench, of, node, slots=64):
            found["free"] = closed_loop(bench, of, rounds, seconds)
        with started(bench, of, node, slots=16):
            found["queued"] = closed_loop(bench, of, rounds, seconds)
    return found
