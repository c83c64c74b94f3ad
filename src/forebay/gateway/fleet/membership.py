"""How a gateway becomes one of several: who it says it is, and whom it asks when it is alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from forebay import __version__
from forebay.coordination import InProcess
from forebay.coordination.protocol.messages import About
from forebay.errors import BackendFailed, NotAllowed
from forebay.gateway.fleet.peer_target import peer_target
from forebay.settings import advertised, replica_name
from forebay.wire.client import Pool
from forebay.wire.fetch import fetch

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from forebay.clock import Timers
    from forebay.coordination import Perform
    from forebay.coordination.replica import Replica
    from forebay.settings import Settings

ASK_S: Final = 1.0
"""How long another gateway may take to say how it is."""
SHARED: Final[Any] = {
    **dict.fromkeys(("queue", "retry", "models", "nodes", "keys"), True),
    "coordination": {"lease_seconds"},
}
"""Sections of the settings that must be the same everywhere, and one key."""
DIGITS: Final = 12


class Alive(msgspec.Struct):
    """What `/ready` says."""

    mode: str = ""


def make_coordinator(
    settings: Settings, perform: Perform, clock: Timers, chance: random.Random
) -> InProcess | Replica:
    """Return what decides for this gateway: a core of its own, or one shared through a store."""
    options, coordination = settings.queue.options(), settings.coordination
    if not coordination.url:
        return InProcess(options, perform, clock.monotonic_s, clock.call_at)
    try:
        from forebay.coordination.replica import Replica
        from forebay.coordination.store.valkey import ValkeyStore
    except ImportError as error:
        raise NotAllowed("coordination.url needs a driver: pip install 'forebay[redis]'") from error
    try:
        store = ValkeyStore(coordination.url, coordination.lease_seconds)
    except (TypeError, ValueError) as error:  # an option in the query that the driver cannot read
        raise NotAllowed(f"coordination.url: {error}") from error
    replica = Replica(
        About(f"{chance.randbytes(4).hex()}-0"),  # until it listens, and knows its address
        options,
        perform,
        clock,
        store,
        lease_s=coordination.lease_seconds,
    )
    replica.ask_peers = partial(anyone_led, settings.server.tls_cert)
    return replica


def about(settings: Settings, port: int, chance: random.Random) -> About:
    """Return who a gateway is, once it listens."""
    address = advertised(settings.server, settings.coordination, port)
    member = f"{replica_name(address)}-{chance.randbytes(4).hex()}"
    return with_settings(About(member, address, __version__), settings)


def with_settings(about: About, settings: Settings) -> About:
    """Return who a gateway is after its settings have changed."""
    given = given_settings(settings)
    return replace(about, settings=_digits(sorted(given.items())), given=given)


def given_settings(settings: Settings) -> dict[str, str]:
    """Return digits that tell values apart, of shared settings that are not the default, by key."""
    given: dict[str, str] = {}
    shared = settings.model_dump(mode="json", include=SHARED, exclude_defaults=True)
    for section, values in shared.items():
        if isinstance(values, dict):
            given |= {f"{section}.{key}": _digits(value) for key, value in values.items()}
        else:
            given[section] = _digits(values)
    return given


def _digits(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


async def anyone_led(own_certificate: str, addresses: Sequence[str]) -> bool:
    """Ask other gateways whether one of them still has a leader."""
    asked = await asyncio.gather(*(_is_led(address, own_certificate) for address in addresses))
    return any(asked)


async def _is_led(address: str, own_certificate: str) -> bool:
    pool = _pool(address, own_certificate)
    if pool is None:
        return False
    host = urlsplit(address).netloc.encode()
    head = b"GET /ready HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % host
    try:
        async with asyncio.timeout(ASK_S):
            answer = await fetch(pool, head, b"", limit_s=ASK_S, fresh=True)
        return answer.status == 200 and (
            msgspec.json.decode(answer.body, type=Alive).mode == "coordinated"
        )
    except (BackendFailed, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        pool.close()


def _pool(address: str, own_certificate: str) -> Pool | None:
    """Return a pool for an address; None for what is none: it comes from the store."""
    try:
        return Pool(peer_target(address, own_certificate, ASK_S), idle_max=0)
    except ValueError:
        return None
