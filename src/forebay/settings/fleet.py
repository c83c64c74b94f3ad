"""`[guard]` and `[coordination]`, and the address and name of this gateway among its peers."""

import hashlib
import socket
from typing import Annotated

from pydantic import AfterValidator, Field

from forebay.settings.addresses import HttpRootOrNothing, split_url
from forebay.settings.errors import SettingsError, SettingsProblem, refusal
from forebay.settings.section import AmountAboveZero, Section, Variable
from forebay.settings.server import ServerSettings
from forebay.settings.store_url import BadStoreUrl, parse_store_url

WILDCARDS = ("0.0.0.0", "::", "")
NAME_DIGITS = 8


def _store(url: str) -> str:
    if url:
        try:
            parse_store_url(url)
        except BadStoreUrl as error:
            raise refusal(error.wrong, error.instead) from None
    return url


StoreUrl = Annotated[str, AfterValidator(_store)]


class GuardSettings(Section):
    """The guard that stands beside a backend on its own machine."""

    token_env: Variable = ""
    """Environment variable with the token that guards (`forebay node`) register with. Empty: none
    may register."""


class CoordinationSettings(Section):
    """Several gateways that share one queue."""

    url: StoreUrl = Field(default="", repr=False)
    """Valkey or Redis server that the gateways share, as a URL: `redis://host:6379/0`, with TLS
    `rediss://`; through sentinels `redis+sentinel://host:26379,host:26379/service`; a cluster
    `redis+cluster://host:6379`. Empty: this gateway is the only one."""

    advertise: HttpRootOrNothing = ""
    """URL at which the other gateways reach this one. Its name among them, and in the ids of its
    sessions, is made from it: keep it the same over restarts. Empty: made of `server.host`,
    `server.port` and whether there is TLS; where the host is a wildcard, of this machine's name."""

    lease_seconds: AmountAboveZero = 5.0
    """How long the leading gateway stays the leader without a sign of life, in seconds; above 0.
    Shorter notices a dead one sooner, longer survives a slow network."""


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
    return SettingsError([SettingsProblem("coordination.advertise", wrong, instead)])
