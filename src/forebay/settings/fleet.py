"""`[guard]` and `[coordination]`: what lives on other machines."""

from pydantic import Field

from forebay.settings.addresses import HttpRootOrNothing, StoreUrl
from forebay.settings.section import AmountAboveZero, Section, Variable


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
