"""What the gateway would do with these settings, in words."""

from collections.abc import Iterable
from math import isinf

from forebay.settings.addresses import is_loopback_name, without_password
from forebay.settings.keys import KeySettings
from forebay.settings.model import Settings
from forebay.settings.nodes import NodeSettings
from forebay.settings.queue import QueueSettings

ORDERS = {
    "round_robin": "users take turns",
    "tokens": "users share by the tokens they use",
    "fifo": "whoever came first is next",
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
    return f"It listens on {scheme}://{host}:{port}, {reach}."


def _nodes(nodes: tuple[NodeSettings, ...]) -> Iterable[str]:
    if not nodes:
        yield (
            "No node is configured: it looks for Ollama, llama.cpp, vLLM and LM Studio on this "
            "machine, and else runs a small model itself."
        )
    for node in nodes:
        slots = f"{node.slots} at once" if node.slots else "as many at once as it says"
        models = f"for {', '.join(node.models)}" if node.models else "for the models it lists"
        yield f"Node {node.name} at {node.url}: {slots}, {models}."


def _keys(settings: Settings) -> Iterable[str]:
    if not settings.keys:
        warning = (
            "" if is_loopback_name(settings.server.host) else " Make one: forebay keys new NAME."
        )
        yield f"No keys: whoever reaches it may use it.{warning}"
    for key in settings.keys:
        yield _one_key(key)


def _one_key(key: KeySettings) -> str:
    limits = [
        f"priority up to {key.max_priority}",
        f"models {', '.join(key.models)}" if key.models else "every model",
        f"{key.max_running} running at once" if key.max_running else "no limit of its own",
        *(["believed about its users"] if key.trust_user else []),
        *(["an admin"] if key.admin else []),
    ]
    return f"Key {key.name} for user {key.user or key.name}: {', '.join(limits)}."


def _queue(queue: QueueSettings) -> Iterable[str]:
    if not queue.enabled or not queue.max_size:
        yield "Nobody waits: with no slot free a request is answered 503."
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
        f"one with nothing going on ends after {sessions.idle_seconds / 3600:g} h."
    )


def _storage(settings: Settings) -> str:
    alone = "It works alone."
    if settings.coordination.url:
        alone = f"Its queue is to be shared through {without_password(settings.coordination.url)}."
    return f"Jobs are kept in {without_password(settings.jobs.database)}. {alone}"
