"""The listening sockets of several workers, which the parent binds and holds."""

from __future__ import annotations

import socket
import sys

BACKLOG = 4096
"""Connections that the kernel queues for each worker until they are accepted."""


def listen(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    """Return the sockets of each worker, one for each address; raises OSError where one is taken.

    On Linux each worker has sockets of its own, and the kernel spreads connections over them by a
    hash. Elsewhere all have the same ones.
    """
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
    )
    by_address: list[list[socket.socket]] = []
    for family, _, _, _, address in dict.fromkeys(found):
        taken = by_address[0][0].getsockname()[1] if by_address else port
        own = (str(address[0]), taken, *address[2:])
        first = _bound(family, own, shared=False)  # fails where another program listens already
        own = first.getsockname()
        if not sys.platform.startswith("linux"):
            by_address.append([first] * workers)
            continue
        first.close()
        by_address.append([_bound(family, own, shared=True) for _ in range(workers)])
    for sockets in by_address:
        for sock in sockets:
            sock.listen(BACKLOG)
    return [list(sockets) for sockets in zip(*by_address, strict=True)]


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
