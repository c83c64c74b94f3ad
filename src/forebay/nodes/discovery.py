"""Find the servers that already run on this machine, by asking the ports they are known for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from forebay.errors import BackendFailed
from forebay.nodes.adapters.detection import detect
from forebay.nodes.adapters.report import ProbeReply
from forebay.wire.fetch import fetch
from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.nodes.adapters.report import Fetch

USUAL_PORTS = {"Ollama": 11434, "llama.cpp": 8080, "vLLM": 8000, "LM Studio": 1234}
LOOPBACK_URLS = tuple(f"http://127.0.0.1:{port}" for port in USUAL_PORTS.values())
LIMIT_S = 2.0
"""Loopback answers in milliseconds; this is how long a hanging port may delay the start."""


class Found(Struct, frozen=True):
    """A server that answered: what a `[[nodes]]` entry needs."""

    name: str
    url: str
    kind: str


async def discover(
    fetch_at: Callable[[str], Fetch],
    urls: Iterable[str] = LOOPBACK_URLS,
    limit_s: float = LIMIT_S,
) -> tuple[Found, ...]:
    """Ask all addresses at once and return the nodes found, in the order of the addresses.

    `fetch_at(url)` gives the way to ask one address. Never raises because of what is there or
    not there; a port that does not answer within `limit_s` counts as empty.
    """
    asked = tuple(urls)
    kinds = await asyncio.gather(*(_kind(fetch_at(url), limit_s) for url in asked))
    found: list[Found] = []
    for url, kind in zip(asked, kinds, strict=True):
        if kind:
            twins = sum(node.kind == kind for node in found)
            found.append(Found(f"{kind}-{twins + 1}" if twins else kind, url, kind))
    return tuple(found)


async def _kind(fetch: Fetch, limit_s: float) -> str:
    """Return the kind of what answers, or "" for nothing."""
    try:
        async with asyncio.timeout(limit_s):
            return (await detect(fetch)).kind
    except (BackendFailed, TimeoutError):
        return ""


def http_fetch(url: str) -> Fetch:
    """Return the way to ask what is at an address."""
    parts = urlsplit(url)
    pool = ConnectionPool(Target(parts.hostname or "", parts.port or 80, None, LIMIT_S), idle_max=0)

    async def ask(method: str, path: str, body: bytes = b"") -> ProbeReply:
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n" % (
            method.encode(), path.encode(), parts.netloc.encode()
        )  # fmt: skip
        length = b"content-length: %d\r\n" % len(body) if body else b""
        answer = await fetch(pool, head + length + b"\r\n", body, limit_s=LIMIT_S, fresh=True)
        return ProbeReply(answer.status, answer.headers, answer.body)

    return ask
