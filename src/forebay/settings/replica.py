"""A gateway among others: where they reach it, and the name that is made from that."""

import hashlib
import socket

from forebay.settings.addresses import split_url
from forebay.settings.errors import Problem, SettingsError
from forebay.settings.fleet import CoordinationSettings
from forebay.settings.server import ServerSettings

WILDCARDS = ("0.0.0.0", "::", "")
NAME_DIGITS = 8


def replica_name(address: str) -> str:
    """Return the name of the gateway at an address: eight hexadecimal digits, always the same.

    >>> replica_name("http://10.0.0.1:7800"), replica_name("HTTP://10.0.0.1:7800/")
    ('d504ab54', 'd504ab54')
    """
    plain = address.strip().rstrip("/").lower()
    return hashlib.sha256(plain.encode()).hexdigest()[:NAME_DIGITS]


def advertised(
    server: ServerSettings,
    coordination: CoordinationSettings,
    port: int = 0,
    hostname: str | None = None,
) -> str:
    """Return the URL at which other gateways reach one; raises SettingsError where there is none.

    `port` is the one it listens on, where the system has chosen it (`server.port = 0`).
    """
    if coordination.advertise:
        return coordination.advertise
    number = port or server.port
    if not number:
        raise _unreachable("server.port = 0 leaves the port to the system")
    host = server.host
    if host in WILDCARDS:
        host = (socket.gethostname() if hostname is None else hostname).lower()
    scheme = "https" if server.tls_cert else "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{number}"
    if split_url(url) is None:
        raise _unreachable("this machine's own name is not one that others could ask for")
    return url


def _unreachable(why: str) -> SettingsError:
    wrong = f"is needed to share a queue: {why}"
    instead = 'write where the other gateways reach this one, such as "http://10.0.0.1:7800"'
    return SettingsError([Problem("coordination.advertise", wrong, instead)])
