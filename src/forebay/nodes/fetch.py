"""Asking a server that is not a node yet: the `Fetch` of discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forebay.nodes.adapters.report import ProbeReply
from forebay.wire.client import ConnectionPool, Target
from forebay.wire.fetch import fetch

if TYPE_CHECKING:
    from forebay.nodes.adapters.report import Fetch

LIMIT_S = 2.0


def fetch_at(url: str) -> Fetch:
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
