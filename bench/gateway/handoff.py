"""A freed slot: how long until the next waiting request is on the wire, seen from the node."""

from statistics import median

from bench.gateway import payload
from bench.gateway.gateways import Gateway
from bench.gateway.programs import run_load
from bench.gateway.stage import Bench, Target, node_stats, running, stream_node

HOLD_S = 0.002  # the node's time per answer: long enough that the queue is never empty
WAITING = 8  # clients in a closed loop; one is served, the others wait
ROUNDS = 3


def freed_slot(bench: Bench, queueing: list[Gateway]) -> dict[str, dict[str, object]]:
    """Measure with one slot; direct is one client that sends its next when it has its answer."""
    taken: dict[str, list[dict[str, float]]] = {}
    request = bench.request("chat.http", payload.post(payload.chat_body()))
    with (
        stream_node(bench, hold_s=HOLD_S) as node,
        running(bench, queueing, node, slots=1) as targets,
    ):
        for _ in range(2 if bench.quick else ROUNDS):
            for target in (node, *targets):
                figures = _round(bench, node, target, str(request))
                taken.setdefault(target.name, []).append(figures)
    results: dict[str, dict[str, object]] = {}
    for name, figures_of in taken.items():
        p50 = median(one["p50_us"] for one in figures_of) / 1e3
        p99 = median(one["p99_us"] for one in figures_of) / 1e3
        results[name] = {"value": p50, "p99_ms": p99, "rounds": figures_of}
    return results


def _round(bench: Bench, node: Target, target: Target, request: str) -> dict[str, float]:
    seconds = bench.seconds(2.0, 0.7)
    clients = 1 if target is node else WAITING
    node_stats(node)  # forgets
    load = run_load(bench.load, "loop", target.port, request, clients, seconds, timeout_s=30)
    return {**node_stats(node), "errors": load.get("errors", -1)}
