"""Ports for programs that must come back where they were."""

import os
import random
import socket

FIRST, LAST = 20_000, 32_000
"""Below what Linux gives to outgoing connections, so that none of those takes a port while the
program that has it is being restarted."""


def free_port(draw: random.Random | None = None) -> int:
    """Return a loopback port that nothing listens on now, and nothing is likely to take."""
    draw = draw or random.Random(f"{os.getpid()} {os.urandom(4).hex()}")
    while True:
        port = draw.randrange(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def is_taken(port: int) -> bool:
    """Say whether something listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
