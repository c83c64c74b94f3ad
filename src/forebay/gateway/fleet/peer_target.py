"""Where another gateway of the fleet is reached, and when its certificate is believed."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from forebay.wire.target import Target


def peer_target(address: str, own_certificate: str, connect_s: float) -> Target:
    """Return where a gateway is; one that has our own certificate is one of us."""
    parts = urlsplit(address)
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        if own_certificate:
            tls.load_verify_locations(own_certificate)
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls, connect_s)
