"""Every recorded request through every gateway: calls for each CPU second, start by start.

A gateway is started several times, because one process of the same program may be a fifth faster
than the next: a figure is the median over starts, with the least and the most beside it. Ratios
are taken within a start, where all gateways run side by side, and then over starts.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from bench.gateway import unary
from bench.gateway.gateways import BARE_RELAY, HAPROXY
from bench.gateway.programs import ask
from bench.gateway.stage import Bench, Setup, Target, running, stream_node
from harness.recordings import Recording

SLOTS = 64  # for 32 clients: none waits
CHUNKS = 20  # of a stream,
CHUNKS_PER_SECOND = 500  # far enough apart that none is sent together with the next
SECONDS = 1.0  # of each round; there is one for each start

Figures: TypeAlias = Mapping[str, object]
Start: TypeAlias = Mapping[str, Mapping[str, Figures]]
"""Payload → gateway → what one round gave."""


def node_kind(recording: Recording) -> str:
    """Return the server that a gateway takes the node for: one that has the route."""
    return "ollama" if recording.route.startswith("/api/") else "llama-cpp"


def take_starts(
    bench: Bench, chosen: Sequence[Recording], starts: int, say: Callable[[str], None]
) -> list[Start]:
    """Start every gateway that often; give each one round of each payload, in turn."""
    taken: list[Start] = []
    for number in range(starts):
        start: dict[str, dict[str, Figures]] = {}
        gateways = [one for one in bench.gateways if not (one.slow and number)]
        for kind in dict.fromkeys(map(node_kind, chosen)):
            say(f"payloads: start {number + 1} of {starts}, nodes of {kind}")
            setup = Setup(kind=kind)
            with (
                stream_node(bench, chunks=CHUNKS, per_second=CHUNKS_PER_SECOND) as node,
                running(bench, gateways, node, SLOTS, setup) as targets,
            ):
                of_kind = [one for one in chosen if node_kind(one) == kind]
                for target in targets if not bench.quick else []:
                    take_round(bench, target, of_kind[0].request)  # warm, and not counted
                for recording in of_kind:
                    start[recording.name] = {
                        target.name: take_round(bench, target, recording.request)
                        for target in (node, *targets)
                    }
        taken.append(start)
    return taken


def take_round(
    bench: Bench, target: Target, request: bytes, variables: Mapping[str, str] = unary.NO_VARIABLES
) -> Figures:
    """Send one request for a second by 32 clients; say so where it is not answered at all."""
    try:
        status = ask(target.port, request, 10.0)[0]
    except OSError:
        status = 0
    if status != 200:
        return {"left_out": f"HTTP {status}" if status else "no answer"}
    return unary.wrk(bench, target, SECONDS, request=request, variables=variables)


def over_starts(starts: Sequence[Start]) -> dict[str, dict[str, dict[str, object]]]:
    """Return payload → gateway → the medians over starts, with the spread of the ratio."""
    results: dict[str, dict[str, dict[str, object]]] = {}
    for payload in dict.fromkeys(name for start in starts for name in start):
        rounds = [start[payload] for start in starts if payload in start]
        names = dict.fromkeys(name for one in rounds for name in one)
        results[payload] = {name: _summary(rounds, name) for name in names}
    return results


def _summary(rounds: Sequence[Mapping[str, Figures]], name: str) -> dict[str, object]:
    own = [one[name] for one in rounds if name in one]
    good = [one for one in own if "per_cpu_s" in one]
    if not good:
        return {"left_out": own[0].get("left_out", "-")}
    return {
        **{key: median(_numbers(good, key)) for key in ("per_second", "per_cpu_s", "core_busy")},
        **{key: median(_numbers(good, key)) for key in ("p50_ms", "p99_ms")},
        "errors": sum(_numbers(good, "errors")),
        "starts": len(good),
        "to_haproxy": ratios(rounds, name, HAPROXY.name),
        "to_bare_relay": ratios(rounds, name, BARE_RELAY.name),
        "rounds": own,
    }


def ratios(
    rounds: Sequence[Mapping[str, Figures]], name: str, reference: str
) -> dict[str, float] | None:
    """Return median, least and most of the ratio to `reference`, each taken within a start."""
    pairs = [(one.get(name, {}), one.get(reference, {})) for one in rounds]
    found = [_number(own) / _number(other) for own, other in pairs if _number(other)]
    found = [ratio for ratio in found if ratio]
    return {"median": median(found), "min": min(found), "max": max(found)} if found else None


def _number(figures: Figures, key: str = "per_cpu_s") -> float:
    found = figures.get(key, 0.0)
    return float(found) if isinstance(found, int | float) else 0.0


def _numbers(rounds: Sequence[Figures], key: str) -> list[float]:
    return [_number(one, key) for one in rounds]
