"""Membership in the fleet of gateways that share one queue: joining it, and asking its members."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from forebay import __version__
from forebay.coordination import InProcess
from forebay.coordination.protocol.messages import About
from forebay.errors import BackendFailed, NotAllowed
from forebay.gateway.errors.http_error import HttpError
from forebay.settings import BadStoreUrl, advertised, replica_name
from forebay.wire.fetch import fetch
from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forebay.clock import Timers
    from forebay.coordination import Coordinator, Fleet, Perform
    from forebay.gateway.fleet.node_answers import NodeAnswers
    from forebay.gateway.fleet.node_commands import NodeCommandLog
    from forebay.settings import Settings

ASK_S: Final = 1.0
"""How long another gateway may take to answer `/ready`."""
SHARED: Final[Any] = {
    **dict.fromkeys(("queue", "retry", "models", "nodes", "keys"), True),
    "coordination": {"lease_seconds"},
}
"""Settings that must be the same on all gateways: whole sections, and one key."""
DIGITS: Final = 12
UNIX: Final = "unix"
"""The scheme of addresses of workers of the same machine."""


class Membership:
    """This gateway's place among those that share its queue."""

    def __init__(
        self,
        coordinator: Coordinator,
        node_commands: NodeCommandLog,
        node_answers: NodeAnswers,
        *,
        is_shared: bool,
        worker: About | None = None,
    ) -> None:
        """`worker` says who this one is among the workers of one gateway."""
        self._coordinator = coordinator
        self._node_commands = node_commands
        self._node_answers = node_answers
        self._is_shared = is_shared
        self._worker = worker
        self._about: About | None = None
        self.fleet: Fleet | None = None
        """The gateways of the fleet; None where this one works alone, or has not joined yet."""

    @property
    def name(self) -> str:
        """This gateway's name in the fleet, "" where it works alone; raises HttpError until then.

        It listens before it has joined: what depends on the name has to wait. The workers of one
        gateway are one gateway.
        """
        if self.fleet is not None and self._worker is None:
            return self.fleet.me
        if self._is_shared:
            raise HttpError("replica_unavailable", "this gateway is still starting")
        return ""

    @property
    def shown(self) -> Fleet | None:
        """The gateways of the fleet, for whoever looks: workers are nobody's business."""
        return self.fleet if self._worker is None else None

    async def start(self, settings: Settings, port: int) -> None:
        """Join the fleet, where there is one: of gateways, or of the workers of this one."""
        fleet = self._coordinator.fleet
        if fleet is not None:
            if self._worker is None:
                self._about = about(settings, port, random.SystemRandom())
                self._coordinator.introduce(self._about)
            self.join(fleet)
        await self._coordinator.start()

    def join(self, fleet: Fleet) -> None:
        """Be one of these gateways; before `start`, so that sessions are found."""
        self.fleet = fleet
        if self._worker is None:  # workers hear of nodes from their leader
            self._node_commands.join(fleet)
        self._node_answers.join(fleet)

    def stop(self) -> None:
        self._node_answers.stop()

    def change(self, settings: Settings) -> None:
        """Tell the others of settings that have been reloaded."""
        if self._about is not None:
            self._about = with_settings(self._about, settings)
            self._coordinator.introduce(self._about)


def make_coordinator(
    settings: Settings,
    perform: Perform,
    clock: Timers,
    chance: random.Random,
    on_probe_request: Callable[[str], None],
) -> Coordinator:
    """Return the coordinator: a core of its own, or one shared through a store.

    `on_probe_request` is called with the name of a node that the leader wants to have probed.
    """
    options, coordination = settings.queue.options(), settings.coordination
    if not coordination.url:
        return InProcess(options, perform, clock)
    try:
        from forebay.coordination.replica import Replica
        from forebay.coordination.store.valkey import ValkeyStore
    except ImportError as error:
        raise NotAllowed("coordination.url needs a driver: pip install 'forebay[redis]'") from error
    try:
        store = ValkeyStore(coordination.url, coordination.lease_seconds)
    except BadStoreUrl as error:
        raise NotAllowed(f"coordination.url {error}") from error
    replica = Replica(
        About(f"{chance.randbytes(4).hex()}-0"),  # until it listens, and knows its address
        options,
        perform,
        clock,
        store,
        lease_s=coordination.lease_seconds,
    )
    replica.on_probe_request = on_probe_request
    replica.ask_peers = partial(anyone_led, settings.server.tls_cert)
    return replica


def about(settings: Settings, port: int, chance: random.Random) -> About:
    """Describe a gateway to the others, once it listens."""
    address = advertised(settings.server, settings.coordination, port)
    member = f"{replica_name(address)}-{chance.randbytes(4).hex()}"
    return with_settings(About(member, address, __version__), settings)


def with_settings(about: About, settings: Settings) -> About:
    """Return the description with the fingerprints of other settings."""
    given = given_settings(settings)
    return replace(about, settings=_digits(sorted(given.items())), given=given)


def given_settings(settings: Settings) -> dict[str, str]:
    """Return fingerprints of the shared settings that are not the default, by key."""
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
    try:
        pool = ConnectionPool(peer_target(address, own_certificate, ASK_S), idle_max=0)
    except ValueError:  # an invalid address: it comes from the store
        return False
    host = urlsplit(address).netloc.encode()
    head = b"GET /ready HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % host
    try:
        async with asyncio.timeout(ASK_S):
            answer = await fetch(pool, head, b"", limit_s=ASK_S, fresh=True)
        return answer.status == 200 and (
            msgspec.json.decode(answer.body, type=dict[str, Any]).get("mode") == "coordinated"
        )
    except (BackendFailed, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        pool.close()


def peer_target(address: str, own_certificate: str, connect_s: float) -> Target:
    """Return where a gateway is reached; one with our own certificate is trusted."""
    parts = urlsplit(address)
    tls = None
    if parts.scheme == UNIX:
        return Target("", 0, None, connect_s, parts.path)
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        if own_certificate:
            tls.load_verify_locations(own_certificate)
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls, connect_s)
