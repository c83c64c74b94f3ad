"""One call, varied: users, streams, keys, heads, connections, nodes, waiting; one start each."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.gateway import payloads
from bench.gateway.stage import Bench, Setup, running, stream_node
from harness.recordings import recording

NODES = 8


@dataclass(frozen=True)
class Variation:
    """What differs from the first of them."""

    name: str
    recording: str = "openai-chat-user"
    slots: int = payloads.SLOTS
    nodes: int = 1
    keys: bool = True
    close: bool = False
    """Every call comes on a connection of its own."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def request(self) -> bytes:
        request = recording(self.recording).request
        return request.replace(b"keep-alive", b"close", 1) if self.close else request


USERS = {"BENCH_USERS": "1000"}
VARIATIONS = (
    Variation("user, key, one node, none waits"),
    Variation("no user", "openai-chat"),
    Variation("stream", "openai-stream"),
    Variation("stream, user", "openai-async-stream-user"),
    Variation("no keys", keys=False),
    Variation("a new head each call", variables={"BENCH_NEW_HEAD": "1"}),
    Variation("a new connection each call", close=True),
    Variation("1,000 users", variables=USERS),
    Variation("8 nodes", nodes=NODES),
    Variation("half wait", slots=16),
    Variation("half wait, 1,000 users", slots=16, variables=USERS),
    Variation("half wait, 8 nodes", slots=16, nodes=NODES),
)


def take_variations(bench: Bench, say: Callable[[str], None]) -> list[payloads.Start]:
    """Run each through the gateways that queue, and return it as one start."""
    queueing = [one for one in bench.gateways if one.queues]
    start: dict[str, dict[str, payloads.Figures]] = {}
    setups = dict.fromkeys((one.slots, one.nodes, one.keys) for one in VARIATIONS)
    for slots, nodes, keys in setups:
        say(f"variations: {slots} slots, {nodes} nodes, {'keys' if keys else 'no keys'}")
        with ExitStack() as stack:
            beat = {"chunks": payloads.CHUNKS, "per_second": payloads.CHUNKS_PER_SECOND}
            started = [stack.enter_context(stream_node(bench, **beat)) for _ in range(nodes)]
            more = tuple(one.port for one in started[1:])
            setup = Setup(kind="llama-cpp", keys=keys, more_node_ports=more)
            targets = stack.enter_context(running(bench, queueing, started[0], slots, setup))
            for target in targets:  # what a gateway imports once it is used is not counted
                payloads.take_round(bench, target, VARIATIONS[0].request())
            for one in VARIATIONS:
                if (one.slots, one.nodes, one.keys) == (slots, nodes, keys):
                    start[one.name] = {
                        target.name: payloads.take_round(
                            bench, target, one.request(), one.variables
                        )
                        for target in targets
                    }
    return [{one.name: start[one.name] for one in VARIATIONS}]
