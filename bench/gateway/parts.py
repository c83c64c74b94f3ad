"""The other measures, one call each; the results are put in by name."""

from collections.abc import Callable

from bench.gateway import handoff, limits, stall, streams, unary
from bench.gateway.gateways import HAPROXY_CORKED
from bench.gateway.stage import Bench, running, stream_node, unary_node
from harness.recordings import recording

LIMITS_CALL, LIMITS_STREAM = "openai-chat-user", "openai-stream"

Results = dict[str, dict[str, dict[str, object]]]
Say = Callable[[str], None]


def gateway_limits(bench: Bench, results: Results, say: Say) -> None:
    call, stream = recording(LIMITS_CALL), recording(LIMITS_STREAM)
    say("limits: starting gateways")
    with (
        stream_node(bench, chunks=4, per_second=200) as node,
        running(bench, bench.gateways, node, slots=256) as targets,
    ):
        say("calls/s within a latency")
        results["frontier"] = limits.frontier(bench, [node, *targets], call)
        say("first token")
        results["first_token"] = limits.first_token(bench, [node, *targets], stream)
    with (
        stream_node(bench, chunks=400, per_second=limits.TOKENS_PER_SECOND) as node,
        running(bench, bench.gateways, node, slots=limits.STREAMS_MAX) as targets,
    ):
        results["sustained"] = {}
        for target in (node, *targets):
            say(f"streams sustained: {target.name}")
            results["sustained"] |= limits.sustained(bench, node, target, stream)


def steady_calls(bench: Bench, results: Results, say: Say) -> None:
    say("calls at 200 a second")
    with unary_node(bench) as node, running(bench, bench.gateways, node, slots=64) as targets:
        results["latency"] = unary.steady_rate(bench, [node, *targets])


def queued_calls(bench: Bench, results: Results, say: Say) -> None:
    queueing = [one for one in bench.gateways if one.queues]
    say("a freed slot")
    results["freed_slot"] = handoff.freed_slot(bench, queueing)
    say("10,000 waiting")
    with (
        stream_node(bench, hold_s=0.05) as node,
        running(bench, queueing, node, slots=1) as targets,
    ):
        results["waiting"] = streams.memory_with_waiters(bench, targets)


def streamed_calls(bench: Bench, results: Results, say: Say) -> None:
    chunks = int(50 * bench.seconds(7.0, 3.0))
    slow = [one.name for one in bench.gateways if one.slow and bench.quick]
    gateways = [HAPROXY_CORKED, *(one for one in bench.gateways if one.name not in slow)]
    absent = streams.left_out(slow, "not in --quick")
    for phases, suffix in ((streams.SPREAD, ""), (1, "_in_step")):
        say("streams: starting gateways")
        with (
            stream_node(bench, chunks=chunks, phases=phases) as node,
            running(bench, gateways, node, slots=2000) as targets,
        ):
            everyone = [node, *targets]
            say("100 streams of 50 chunks a second" + suffix.replace("_", " "))
            taken = streams.chunks_per_cpu(bench, node, everyone, 100)
            able = streams.able(everyone, taken)
            unable = absent | streams.left_out(
                [one.name for one in targets if one not in able], "100 are too many"
            )
            results["streams_100" + suffix] = absent | taken
            say("500 streams of 50 chunks a second" + suffix.replace("_", " "))
            results["streams_500" + suffix] = unable | streams.chunks_per_cpu(
                bench, node, able, 500
            )
            if suffix:
                continue
            say("1,000 open streams")
            results["open_streams"] = unable | streams.memory_with_streams(bench, node, able)
            say("a 30 MiB body")
            results["large_body"] = absent | stall.large_body(bench, everyone)


PARTS: dict[str, Callable[[Bench, Results, Say], None]] = {
    "limits": gateway_limits,
    "latency": steady_calls,
    "queue": queued_calls,
    "streams": streamed_calls,
}
