"""Whose address counts when a proxy stands in front of us."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.wire.heads import Headers

HOPS_MAX = 16
"""How many entries of `X-Forwarded-For` are looked at; nobody has more proxies."""
HOP: Final = "x-forebay-hop"
"""The header of a request that another gateway forwards for one of its clients."""
FORWARDING: Final = (
    b"forwarded", b"x-forwarded", b"x-original-forwarded-for", b"x-real-ip", b"x-client-ip",
    b"x-cluster-client-ip", b"true-client-ip", b"cf-", b"fastly-", b"tailscale-", b"via",
    HOP.encode(),
)  # fmt: skip
"""Prefixes of the headers by which proxies say that they act for someone else."""


def is_forwarded(headers: Headers) -> bool:
    """Say whether a proxy sends the request, declared or not; one may keep silent about it.

    >>> is_forwarded([(b"host", b"a"), (b"x_real_ip", b"1.2.3.4")])
    True
    >>> is_forwarded([(b"host", b"a")])
    False
    """
    return any(name.replace(b"_", b"-").startswith(FORWARDING) for name, _ in headers)


class TrustedProxies:
    """Reads `X-Forwarded-For` from the right, as far as the proxies are ours.

    >>> proxies = TrustedProxies(["10.0.0.0/8"])
    >>> proxies.client("10.0.0.1", b"6.6.6.6, 1.2.3.4, 10.0.0.2")
    '1.2.3.4'
    >>> proxies.client("9.9.9.9", b"1.2.3.4")
    '9.9.9.9'
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(network) for network in networks]

    def client(self, peer: str, forwarded: bytes | None) -> str:
        """Return the address of the client as far as it can be trusted."""
        if forwarded is None or not self._networks or not self._trusts(peer):
            return peer
        address = peer
        for hop in reversed(forwarded.decode("latin-1").split(",")[-HOPS_MAX:]):
            try:
                address = str(ip_address(hop.strip()))
            except ValueError:
                return address
            if not self._trusts(address):
                return address
        return address

    def _trusts(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
