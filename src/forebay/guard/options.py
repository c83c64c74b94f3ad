"""What a guard is told on its command line."""

from __future__ import annotations

from msgspec import Struct


class GuardOptions(Struct, frozen=True, kw_only=True):
    """One guard; URLs are plain roots, as `forebay.settings` makes them."""

    backend: str
    """The URL of the server that it guards."""
    host: str = "127.0.0.1"
    port: int = 7900
    slots: int = 0
    """Requests let through at once; 0 takes what the backend says, and 1 where it does not."""
    gateways: tuple[str, ...] = ()
    advertise: str = ""
    """Where gateways reach the guard; "" is the address it listens on."""
    name: str = ""
    """Its name in the gateways; "" is made of the advertised address."""
    token: str = ""
    api_key: str = ""
    """The key that the backend wants."""
    run_s: float = 3600.0
    """The longest that one request may run; 0 is no limit."""
    shutdown_s: float = 30.0


class GuardLimits(Struct):
    """What the guard's listening socket allows: a gateway in front has sorted the clients out."""

    body_max_bytes: int = 268_435_456
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 300.0
    write_seconds: float = 30.0
    connections_max: int = 1024
