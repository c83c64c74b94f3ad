"""`[guard]` and `[coordination]`: what lives on other machines."""

from pydantic import Field

from forebay.settings.addresses import StoreUrl
from forebay.settings.section import AmountAboveZero, Section, Variable


class GuardSettings(Section):
    """The guard that stands beside a backend on its own machine."""

    token_env: Variable = ""
    """Environment variable with the token that guards (`forebay node`) register with. Empty: none
    may register."""


class CoordinationSettings(Section):
    """Several gateways that share one queue."""

    url: StoreUrl = Field(default="", repr=False)
    """Valkey or Redis server that the gateways share, as a URL. Empty: this gateway is the only
    one."""

    lease_seconds: AmountAboveZero = 5.0
    """How long the leading gateway stays the leader without a sign of life, in seconds; above 0.
    Shorter notices a dead one sooner, longer survives a slow network."""
