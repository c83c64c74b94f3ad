"""What a host is called: a name, or an address."""

import re
from ipaddress import ip_address

LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*\.?")
DIGITS_AND_DOTS = re.compile(r"[0-9.]+")


def is_host(host: str) -> bool:
    """Say whether a text in lower case is a host name or an address."""
    if ":" in host or DIGITS_AND_DOTS.fullmatch(host):
        try:
            ip_address(host)
        except ValueError:
            return False
        return True
    return HOST_NAME.fullmatch(host) is not None
