"""Where a server is."""

import ssl

from msgspec import Struct


class Target(Struct, frozen=True):
    """Where a server is."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    connect_s: float = 5.0
