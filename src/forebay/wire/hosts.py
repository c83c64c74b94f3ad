"""Which Host and Origin headers are answered: the guard against DNS rebinding.

A web page that resolves its own name to 127.0.0.1 can reach a local port from the visitor's
browser; what gives it away is the Host header. A page that calls the port directly is given away
by its Origin.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REMEMBERED_MAX = 1024


class HostGuard:
    """Says which requests may come from where."""

    def __init__(self, bound_to: str, allowed: Sequence[str], origins: Sequence[str]) -> None:
        self._allowed = {name.lower() for name in allowed}
        self._any_host = not self._allowed and not is_loopback(bound_to)
        self._origins = {origin.lower() for origin in origins}
        self._hosts: dict[bytes, bool] = {}

    def allows_host(self, host: bytes | None) -> bool:
        """Say whether a Host header is one of ours; the same few are asked again and again."""
        if self._any_host:
            return True
        if host is None:  # HTTP/1.0: no browser
            return True
        known = self._hosts.get(host)
        if known is None:
            known = self._is_ours(host_name(host.decode("latin-1")))
            if len(self._hosts) >= REMEMBERED_MAX:
                self._hosts.clear()
            self._hosts[host] = known
        return known

    def allows_origin(self, origin: bytes | None, host: bytes | None) -> bool:
        """Say whether a page of that origin may call us.

        Only pages of web sites are held to it; tools and desktop apps have other schemes.
        """
        if origin is None:
            return True
        text = origin.decode("latin-1").lower()
        if text in self._origins or "*" in self._origins:
            return True
        if not text.startswith(("http://", "https://")):
            return text != "null"
        site = text.partition("://")[2]
        return host is not None and site == host.decode("latin-1").lower()

    def cors_origin(self, origin: bytes | None) -> bytes | None:
        """Return what `Access-Control-Allow-Origin` says, None where CORS is off for it."""
        if origin is None:
            return None
        listed = origin.decode("latin-1").lower() in self._origins or "*" in self._origins
        return origin if listed else None

    def _is_ours(self, name: str) -> bool:
        return name in self._allowed if self._allowed else is_loopback(name)


def host_name(host: str) -> str:
    """Return a Host header without its port, in lower case.

    >>> [host_name(text) for text in ("LocalHost:7800", "[::1]:80", "127.0.0.1")]
    ['localhost', '::1', '127.0.0.1']
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(name: str) -> bool:
    """Say whether a host name or address is this machine's own.

    >>> [is_loopback(name) for name in ("localhost", "127.8.8.8", "::1", "0.0.0.0", "evil.test")]
    [True, True, True, False, False]
    """
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
