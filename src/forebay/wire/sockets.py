"""What we ask of the kernel for every TCP connection, on both sides."""

from __future__ import annotations

import socket

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
