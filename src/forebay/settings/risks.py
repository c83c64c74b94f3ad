"""Settings that can be used, but are dangerous, do nothing, or will surprise somebody."""

from collections.abc import Iterable
from math import isinf
from urllib.parse import urlsplit

from forebay.settings.addresses import is_loopback_name
from forebay.settings.errors import Problem
from forebay.settings.model import Settings
from forebay.settings.store_url import parse_store_url

PROXY_SECONDS = 60.0
"""How long the usual proxies and load balancers wait for a byte."""


def risks(settings: Settings) -> list[Problem]:
    """Return what the operator should know; nothing of it keeps the gateway from starting."""
    found: list[Problem] = []
    for look in (_openness, _waiting, _no_effect, _nodes, _models, _fleet):
        found += look(settings)
    return found


def _openness(settings: Settings) -> Iterable[Problem]:
    server = settings.server
    if is_loopback_name(server.host):
        if not settings.keys and "*" in server.cors_origins:
            yield Problem(
                "server.cors_origins",
                '"*" without keys lets every web page that is opened here use the models',
                "name the origins that may, or make a key: forebay keys new NAME",
            )
        return
    if not settings.keys:
        yield Problem(
            "keys",
            f"there are none, so whoever reaches {server.host} may use every model",
            'make one: forebay keys new NAME, or write server.host = "127.0.0.1"',
        )
    elif not server.tls_cert and not server.trusted_proxies:
        yield Problem(
            "server.tls_cert",
            "without it, keys and prompts cross the network for anyone to read",
            "set tls_cert and tls_key, or put a proxy with TLS in front and name it in "
            "server.trusted_proxies",
        )


def _waiting(settings: Settings) -> Iterable[Problem]:
    queue = settings.queue
    silence_s = queue.keepalive_seconds or float("inf")
    waits = queue.enabled and queue.max_size > 0 and queue.stream == "queue"
    if waits and min(queue.max_wait_seconds, silence_s) > PROXY_SECONDS:
        wait = "for ever" if isinf(queue.max_wait_seconds) else f"{queue.max_wait_seconds:g} s"
        yield Problem(
            "queue.keepalive_seconds",
            f"a stream may wait {wait} and hear nothing; most proxies and clients give up "
            f"after {PROXY_SECONDS:g} s",
            "write 15, or less than the proxy's own limit",
        )


def _no_effect(settings: Settings) -> Iterable[Problem]:
    queue = settings.queue
    if queue.max_per_user and queue.max_per_user >= queue.max_size > 0:
        yield Problem(
            "queue.max_per_user",
            f"{queue.max_per_user} for one user is no less than queue.max_size for all, "
            f"{queue.max_size}: one user can fill the queue",
            "write less than queue.max_size",
        )
    for key in ("first_byte_seconds", "chunk_gap_seconds"):
        if getattr(queue, key) > queue.run_seconds:
            yield Problem(
                f"queue.{key}",
                f"has no effect: queue.run_seconds, {queue.run_seconds:g}, ends every run before",
                "write less than queue.run_seconds, or raise that",
            )


def _nodes(settings: Settings) -> Iterable[Problem]:
    seen: dict[str, str] = {}
    server = settings.server
    for index, node in enumerate(settings.nodes):
        if node.url in seen:
            yield Problem(
                f"nodes[{index}].url",
                f"{node.name} is the same server as {seen[node.url]}, which then gets twice as "
                "many requests at once as its slots",
                "remove one of the two",
            )
        seen.setdefault(node.url, node.name)
        parts = urlsplit(node.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if port == server.port and is_loopback_name(parts.hostname or ""):
            yield Problem(
                f"nodes[{index}].url",
                f"{node.name} is the address of the gateway itself, which would ask itself",
                "name the server that runs the models",
            )


def _models(settings: Settings) -> Iterable[Problem]:
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
            yield Problem(key, f"no node has {model}", f"name one of {listed}")


def _fleet(settings: Settings) -> Iterable[Problem]:
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
        yield Problem(
            key,
            f"{host} is reached from this machine only: other gateways that share the queue cannot "
            "pass on calls for its sessions and requests",
            "listen on an address of the network and write it in coordination.advertise; ignore "
            "this where all gateways run on this machine",
        )
