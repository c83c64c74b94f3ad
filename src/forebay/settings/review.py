"""What the gateway would do with these settings, and which of them are risky or have no effect."""

from collections.abc import Iterable
from math import isinf
from urllib.parse import urlsplit

from forebay.settings.addresses import is_loopback_name, without_password
from forebay.settings.errors import SettingsProblem
from forebay.settings.keys import KeySettings
from forebay.settings.model import Settings
from forebay.settings.nodes import NodeSettings
from forebay.settings.queue import QueueSettings
from forebay.settings.store_url import parse_store_url

PROXY_SECONDS = 60.0
"""How long the usual proxies and load balancers wait for a byte."""

ORDERS = {
    "round_robin": "users take turns",
    "tokens": "users share by the tokens they use",
    "fifo": "first come, first served",
}


def explain(settings: Settings) -> list[str]:
    """Return what would happen, one sentence or two a line."""
    return [
        _listening(settings),
        *_nodes(settings.nodes),
        *_keys(settings),
        *_queue(settings.queue),
        _retries(settings),
        _sessions(settings),
        _storage(settings),
    ]


def _listening(settings: Settings) -> str:
    server = settings.server
    scheme = "https" if server.tls_cert else "http"
    host = f"[{server.host}]" if ":" in server.host else server.host
    port = server.port or "any free port"
    reach = (
        "reached from this machine only" if is_loopback_name(server.host) else "open to its network"
    )
    workers = server.worker_count()
    processes = f", with {workers} processes that share one queue" if workers > 1 else ""
    return f"It listens on {scheme}://{host}:{port}, {reach}{processes}."


def _nodes(nodes: tuple[NodeSettings, ...]) -> Iterable[str]:
    if not nodes:
        yield (
            "No node is configured: it looks for Ollama, llama.cpp, vLLM and LM Studio on this "
            "machine, and else runs a small model itself."
        )
    for node in nodes:
        found = "as many at once as it runs well"
        slots = found if node.slots == "auto" else f"{node.slots} at once"
        models = f"for {', '.join(node.models)}" if node.models else "for the models it lists"
        yield f"Node {node.name} at {node.url}: {slots}, {models}."


def _keys(settings: Settings) -> Iterable[str]:
    if not settings.keys:
        warning = (
            ""
            if is_loopback_name(settings.server.host)
            else " Create one: forebay keys new NAME --admin."
        )
        yield f"No keys: anyone who can reach it may use it.{warning}"
    for key in settings.keys:
        yield _one_key(key)


def _one_key(key: KeySettings) -> str:
    limits = [
        f"priority up to {key.max_priority}",
        f"models {', '.join(key.models)}" if key.models else "every model",
        f"{key.max_running} running at once" if key.max_running else "no limit of its own",
        *(
            f"{getattr(key, field):,} {field.replace('_', ' ')}"
            for field in ("requests_per_minute", "tokens_per_minute", "tokens_per_day")
            if getattr(key, field)
        ),
        *(["trusted to name its users"] if key.trust_user else []),
        *(["sharing cached prompts"] if key.share_prefixes else []),
        *(["an admin"] if key.admin else []),
    ]
    return f"Key {key.name} for user {key.user or key.name}: {', '.join(limits)}."


def _queue(queue: QueueSettings) -> Iterable[str]:
    if not queue.enabled or not queue.max_size:
        yield "Nothing waits: without a free slot a request gets 503."
        return
    if isinf(queue.max_wait_seconds):
        wait = "as long as it takes"
    else:
        wait = f"at most {queue.max_wait_seconds:g} s each, then {queue.timeout_status}"
    own = f", {queue.max_per_user} of one user" if queue.max_per_user else ""
    yield (
        f"Up to {queue.max_size} requests wait ({_size(queue.max_bytes)} together{own}), {wait}; "
        f"more are answered {queue.full_status}."
    )
    classes = " before ".join(queue.priorities)
    if queue.priority == "weighted":
        classes = f"shares by weight for {', '.join(queue.priorities)}"
    streams = "" if queue.stream == "queue" else " Streams do not wait: they are answered 503."
    yield f"Order: {classes}; inside a class {ORDERS[queue.fairness]}.{streams}"


def _size(count: int) -> str:
    return f"{count / 2**20:g} MiB" if count % 2**20 == 0 else f"{count:,} bytes"


def _retries(settings: Settings) -> str:
    retry = settings.retry
    if retry.attempts == 1:
        return "A request whose node fails is not tried again."
    return (
        f"A request whose node fails before the first byte is tried up to {retry.attempts} times; "
        f"retries are at most {retry.budget:.0%} of requests."
    )


def _sessions(settings: Settings) -> str:
    sessions = settings.sessions
    most = sessions.max_pending_prompts
    pending = f"at most {most} prompts" if most else "any number of prompts"
    where = without_password(sessions.database) if sessions.database else "beside the jobs"
    return (
        f"Up to {sessions.max_sessions:,} sessions with {pending} pending in each, kept {where}; "
        f"an idle one ends after {sessions.idle_seconds / 3600:g} h."
    )


def _storage(settings: Settings) -> str:
    alone = "It works alone."
    if settings.coordination.url:
        alone = f"It shares its queue through {without_password(settings.coordination.url)}."
    return f"Jobs are kept in {without_password(settings.jobs.database)}. {alone}"


def risks(settings: Settings) -> list[SettingsProblem]:
    """Return what the operator should know; nothing of it keeps the gateway from starting."""
    found: list[SettingsProblem] = []
    for check in (
        _exposure_risks,
        _wait_risks,
        _limits_without_effect,
        _node_risks,
        _model_risks,
        _fleet_risks,
    ):
        found += check(settings)
    return found


def _exposure_risks(settings: Settings) -> Iterable[SettingsProblem]:
    server = settings.server
    if is_loopback_name(server.host):
        if not settings.keys and "*" in server.cors_origins:
            yield SettingsProblem(
                "server.cors_origins",
                '"*" without keys lets every web page that is opened here use the models',
                "name the origins that may, or create a key: forebay keys new NAME --admin",
            )
        return
    if not settings.keys:
        yield SettingsProblem(
            "keys",
            f"there are none, so anyone who can reach {server.host} may use every model",
            'create one: forebay keys new NAME --admin, or write server.host = "127.0.0.1"',
        )
    elif not server.tls_cert and not server.trusted_proxies:
        yield SettingsProblem(
            "server.tls_cert",
            "without it, keys and prompts cross the network for anyone to read",
            "set tls_cert and tls_key, or put a proxy with TLS in front and name it in "
            "server.trusted_proxies",
        )


def _wait_risks(settings: Settings) -> Iterable[SettingsProblem]:
    queue = settings.queue
    silence_s = queue.keepalive_seconds or float("inf")
    waits = queue.enabled and queue.max_size > 0 and queue.stream == "queue"
    if waits and min(queue.max_wait_seconds, silence_s) > PROXY_SECONDS:
        wait = "for ever" if isinf(queue.max_wait_seconds) else f"{queue.max_wait_seconds:g} s"
        yield SettingsProblem(
            "queue.keepalive_seconds",
            f"a stream may wait {wait} without receiving anything; most proxies and clients "
            "give up "
            f"after {PROXY_SECONDS:g} s",
            "write 15, or less than the proxy's own limit",
        )


def _limits_without_effect(settings: Settings) -> Iterable[SettingsProblem]:
    queue = settings.queue
    if queue.max_per_user and queue.max_per_user >= queue.max_size > 0:
        yield SettingsProblem(
            "queue.max_per_user",
            f"{queue.max_per_user} for one user is no less than queue.max_size for all, "
            f"{queue.max_size}: one user can fill the queue",
            "write less than queue.max_size",
        )
    for key in ("first_byte_seconds", "chunk_gap_seconds"):
        if getattr(queue, key) > queue.run_seconds:
            yield SettingsProblem(
                f"queue.{key}",
                f"has no effect: queue.run_seconds, {queue.run_seconds:g}, ends every run before",
                "write less than queue.run_seconds, or raise that",
            )


def _node_risks(settings: Settings) -> Iterable[SettingsProblem]:
    seen: dict[str, str] = {}
    server = settings.server
    for index, node in enumerate(settings.nodes):
        if node.url in seen:
            yield SettingsProblem(
                f"nodes[{index}].url",
                f"{node.name} is the same server as {seen[node.url]}, which then gets twice as "
                "many requests at once as its slots",
                "remove one of the two",
            )
        seen.setdefault(node.url, node.name)
        parts = urlsplit(node.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if port == server.port and is_loopback_name(parts.hostname or ""):
            yield SettingsProblem(
                f"nodes[{index}].url",
                f"{node.name} is the address of the gateway itself, which would send requests "
                "to itself",
                "name the server that runs the models",
            )


def _model_risks(settings: Settings) -> Iterable[SettingsProblem]:
    """Look at names of models where every node says in the settings which ones it has."""
    if not settings.nodes or not all(node.models for node in settings.nodes):
        return
    known = {model for node in settings.nodes for model in node.models}
    aliases = settings.models.aliases
    named = [
        *((f'models.aliases."{name}"', target) for name, target in aliases.items()),
        *((f"keys[{i}].models", model) for i, key in enumerate(settings.keys)
          for model in key.models),
    ]  # fmt: skip
    for key, model in named:
        if model not in known and model not in aliases:
            listed = ", ".join(sorted(known)[:10])
            yield SettingsProblem(key, f"no node has {model}", f"name one of {listed}")


def _fleet_risks(settings: Settings) -> Iterable[SettingsProblem]:
    """Look at a gateway that the others cannot reach: the store is elsewhere, so they may be."""
    coordination = settings.coordination
    if not coordination.url:
        return
    if all(is_loopback_name(host) for host, _ in parse_store_url(coordination.url).hosts):
        return
    advertise = coordination.advertise
    host = urlsplit(advertise).hostname if advertise else settings.server.host
    if is_loopback_name(host or ""):
        key = "coordination.advertise" if advertise else "server.host"
        yield SettingsProblem(
            key,
            f"{host} is reached from this machine only: other gateways that share the queue cannot "
            "pass on calls for its sessions and requests",
            "listen on an address of the network and write it in coordination.advertise; ignore "
            "this where all gateways run on this machine",
        )
