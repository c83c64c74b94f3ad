"""How far a gateway goes: calls a second within a latency, the first token, streams sustained."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.gateway import unary
from bench.gateway.programs import run_load
from bench.gateway.stage import Bench, Target
from bench.gateway.streams import await_idle, stream_round
from harness.recordings import Recording

LIMITS_MS = (1.0, 5.0, 10.0)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
CONNECTIONS_QUICK = (2, 8, 32, 128)
CPU_AT = 32
FIRST_CONNECTIONS = 8
TOKENS_PER_SECOND = 20
STREAMS_FIRST, STREAMS_MAX = 250, 8000
LATE_MS_MAX = 50.0
BUSY_MAX = 0.9
DELIVERED_MIN = 0.95

Results = dict[str, dict[str, object]]


def frontier(bench: Bench, targets: Sequence[Target], recording: Recording) -> Results:
    """Step the connections; the most calls a second whose p99 stays within each limit."""
    taken: dict[str, dict[int, dict[str, float]]] = {target.name: {} for target in targets}
    for connections in CONNECTIONS_QUICK if bench.quick else CONNECTIONS:
        for target in targets:
            figures = unary.wrk(bench, target, 1.0, connections, recording.request)
            taken[target.name][connections] = figures
    return {name: _frontier(steps) for name, steps in taken.items()}


def _frontier(steps: Mapping[int, dict[str, float]]) -> dict[str, object]:
    per_cpu_s = steps[CPU_AT]["per_cpu_s"]
    return {
        **{f"within_{limit:.0f}_ms": most_within(steps.values(), limit) for limit in LIMITS_MS},
        "cpu_us": 1e6 / per_cpu_s if per_cpu_s else None,
        "steps": dict(steps),
    }


def most_within(steps: Iterable[Mapping[str, float]], limit_ms: float) -> float | None:
    """Return the most calls a second among those steps whose p99 is within the limit.

    >>> most_within([{"per_second": 9.0, "p99_ms": 2.0}, {"per_second": 7.0, "p99_ms": 0.5}], 1.0)
    7.0
    """
    found = [
        step["per_second"]
        for step in steps
        if step["per_second"] and step["p99_ms"] <= limit_ms and not step.get("errors")
    ]
    return max(found, default=None)


def first_token(bench: Bench, targets: Sequence[Target], recording: Recording) -> Results:
    """Time from a request to its first token; the first target is the node itself."""
    results: Results = {}
    for target in targets:
        request = bench.request("first.http", recording.request)
        words = ("first", target.port, request, FIRST_CONNECTIONS, bench.seconds(4.0, 1.0))
        figures = run_load(bench.load, *words, timeout_s=30)
        answered = figures.get("done", 0) > 0
        p50_us, p99_us = figures.get("p50_us", 0.0), figures.get("p99_us", 0.0)
        results[target.name] = {
            "p50_ms": p50_us / 1e3 if answered else None,
            "p99_ms": p99_us / 1e3 if answered else None,
            "figures": figures,
        }
    return results


def sustained(bench: Bench, node: Target, target: Target, recording: Recording) -> Results:
    """Return how many streams of 20 tokens a second it passes on in time."""
    rounds: dict[int, dict[str, float]] = {}
    request = bench.request("sustained.http", recording.request)

    def in_time(count: int) -> bool:
        for _ in range(1 if bench.quick else 2):  # other work on the machine may spoil one
            rounds[count] = stream_round(bench, target, count, request, TOKENS_PER_SECOND)
            await_idle(node)
            if is_in_time(rounds[count]):
                return True
        return False

    most = most_sustained(in_time, refinements=0 if bench.quick else 2)
    thousand = rounds.get(1000, {})
    return {
        target.name: {
            "value": most,
            "delay_1000_ms": thousand["delay_p99_us"] / 1e3 if "tokens" in thousand else None,
            "busy_1000": thousand.get("core_busy"),
            "rounds": rounds,
        }
    }


def is_in_time(figures: Mapping[str, float]) -> bool:
    """Say whether tokens came, in time, and the gateway's core had room."""
    return (
        figures.get("delivered", 0.0) >= DELIVERED_MIN
        and figures["delay_p99_us"] <= LATE_MS_MAX * 1e3
        and figures["core_busy"] <= BUSY_MAX
        and not figures["errors"]
    )


def most_sustained(in_time: Callable[[int], bool], refinements: int) -> int:
    """Double the streams until they are too many, then halve the gap; 0 when all are too many.

    >>> most_sustained(lambda count: count <= 1400, 2), most_sustained(lambda count: False, 2)
    (1250, 0)
    """
    good, count = 0, STREAMS_FIRST
    while count <= STREAMS_MAX and in_time(count):
        good, count = count, count * 2
    if not good or count > STREAMS_MAX:
        return good
    bad = count
    for _ in range(refinements):
        middle = (good + bad) // 2
        if in_time(middle):
            good = middle
        else:
            bad = middle
    return good
