"""What we ask of the kernel for every connection, on both sides."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

P = TypeVar("P", bound=asyncio.Protocol)

UNCONFIRMED_S_MIN, UNCONFIRMED_S_MAX = 60.0, 86_400.0


def watch_for_dead_peer(sock: socket.socket | None, unconfirmed_s: float = 60.0) -> None:
    """Have the kernel ask a silent peer whether it is still there (a pulled cable says nothing).

    First after 30 s, then twice more: a dead one is noticed after about a minute. While something
    has been written that it has not confirmed, nothing is asked, and the kernel would go on
    sending for a quarter of an hour; so that is given a limit too.
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    unconfirmed_s = max(UNCONFIRMED_S_MIN, min(unconfirmed_s, UNCONFIRMED_S_MAX))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(1000 * unconfirmed_s)),
    ):  # fmt: skip
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def connect(
    make: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None, path: str
) -> P:
    """Connect to a port, or to the Unix socket at a path; raises OSError."""
    loop = asyncio.get_running_loop()
    if path:
        return (await loop.create_unix_connection(make, path))[1]
    return (await loop.create_connection(make, host, port, ssl=tls))[1]
