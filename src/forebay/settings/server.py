"""`[server]`: where the gateway listens, and what a connection may cost."""

from typing import Annotated

from pydantic import Field, model_validator

from forebay.settings.addresses import Host, Network, WebOrigin
from forebay.settings.errors import SettingsProblem, refusals
from forebay.settings.section import (
    Amount,
    AmountAboveZero,
    CountFromOne,
    Flag,
    Section,
)


class ServerSettings(Section):
    """Where the gateway listens, and what a connection may cost."""

    host: Host = "127.0.0.1"
    """Address or host name to listen on. The default is reached from this machine only;
    "0.0.0.0" is every network, and then keys are a good idea."""

    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 7800
    """TCP port to listen on; 0 takes any free one and says which."""

    body_max_bytes: CountFromOne = 33_554_432
    """Largest request body, in bytes (32 MiB: a long conversation with a few images); a larger
    one is answered 413. At least 1."""

    header_seconds: AmountAboveZero = 10.0
    """Longest time for the head of a request to arrive, in seconds; above 0, so that a slow client
    cannot hold a connection for ever."""

    body_seconds: AmountAboveZero = 60.0
    """Longest time for the body of a request to arrive, in seconds; above 0."""

    idle_seconds: AmountAboveZero = 75.0
    """How long a connection may stay open with nothing asked on it, in seconds; above 0. 75 is a
    little more than the 60 that proxies in front usually keep theirs."""

    write_seconds: AmountAboveZero = 30.0
    """How long a client may go without reading its answer, in seconds, before it counts as gone;
    above 0."""

    connections_max: CountFromOne = 10_000
    """Connections open at once; more are refused. At least 1."""

    shutdown_seconds: Amount = 30.0
    """How long requests that run may go on after the gateway is told to stop, in seconds; 0 ends
    them at once."""

    allowed_hosts: tuple[Host, ...] = ()
    """Names and addresses taken as `Host`, without ports. Empty: a gateway that listens on loopback
    takes loopback names only, another takes any."""

    cors_origins: tuple[WebOrigin, ...] = ()
    """Web origins whose pages may call the gateway, such as "https://chat.example"; "*" is every
    one. Empty: none."""

    trusted_proxies: tuple[Network, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` is believed. Empty: none is."""

    tls_cert: str = ""
    """File with the TLS certificate chain, in PEM; together with `tls_key`. Empty: no TLS."""

    tls_key: str = ""
    """File with the private key of `tls_cert`, in PEM. Empty: no TLS."""

    public_status: Flag = False
    """Whether `/metrics`, `/events` and `/v1/queue` answer without a key where keys are set."""

    access_log: Flag = True
    """Whether each request is logged in one line; never with its text."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "ServerSettings":
        if bool(self.tls_cert) != bool(self.tls_key):
            missing, given = ("tls_key", "tls_cert") if self.tls_cert else ("tls_cert", "tls_key")
            raise refusals(
                [
                    SettingsProblem(
                        missing, f"is missing while {given} is set", "set both, or neither"
                    )
                ]
            )
        return self
