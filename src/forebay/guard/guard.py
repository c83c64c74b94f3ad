"""The guard beside a backend (`forebay node`): its options, its parts and their lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from forebay import __version__
from forebay.api.nodes import GuardHeartbeat
from forebay.clock import LoopClock
from forebay.errors import BackendFailed
from forebay.guard.cache_reader import CacheReader
from forebay.guard.heartbeat import NODES_PATH, RegistrationState
from forebay.guard.proxy import GuardProxy
from forebay.guard.requests import RequestClassifier
from forebay.guard.slots import Slots
from forebay.guard.token import TOKEN_HEADER
from forebay.nodes.backend import Backend
from forebay.nodes.gpu import GpuMeter
from forebay.settings import parse_node
from forebay.settings.addresses import is_loopback_name, name_of_url
from forebay.wire.budget import Budget
from forebay.wire.fetch import Fetched, fetch
from forebay.wire.hosts import HostGuard
from forebay.wire.pool import ConnectionPool, Target
from forebay.wire.server import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from forebay.api.nodes import GuardState
    from forebay.clock import TimerHandle, Timers
    from forebay.core import Event

logger = logging.getLogger("forebay.guard")

ANSWER_S: Final = 2.0
"""How long a gateway may take to answer a heartbeat."""
WORDS_MAX: Final = 500
FIRST_PROBE_S: Final = 5.0
CLOSING_S: Final = 1.0
"""How long the last bytes may take to leave."""
ROOM_S: Final = 0.25
"""After a request has ended, until the gateways get the room that it has left in the cache."""
BODIES_BYTES_MAX: Final = 1_073_741_824
"""What all unanswered bodies may take together; gateways hold fewer."""
WILDCARDS: Final = ("0.0.0.0", "::", "")
"""Addresses to listen on that are no address to connect to."""


class Announcer:
    """Sends heartbeats to one gateway, and deregisters when the guard stops.

    `start` and `stop` may be called twice.
    """

    def __init__(
        self,
        url: str,
        token: str,
        heartbeat: Callable[[], Awaitable[GuardHeartbeat]],
        clock: Timers,
    ) -> None:
        self.url = url
        self.registration = RegistrationState()
        self._token = token
        self._heartbeat = heartbeat
        self._clock = clock
        self._pool = ConnectionPool(_target(url))
        self._due = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._left = False
        self._last: GuardHeartbeat | None = None

    def start(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def send_now(self) -> None:
        """Send the next heartbeat now: something has changed that the gateway should know."""
        self._due.set()

    async def stop(self) -> None:
        """Stop, and deregister where we are registered; never raises, bounded in time."""
        if self._left:
            return
        self._left = True
        self._due.set()
        if self._running is not None:
            await self._running  # a heartbeat under way must not arrive after the DELETE
        if self._last is not None and self.registration.registered:
            path = f"{NODES_PATH}/{self._last.name}?instance={self._last.instance}"
            with contextlib.suppress(BackendFailed):  # the missing heartbeats tell it as well
                await self._send("DELETE", path)
        self._pool.close()

    async def _run(self) -> None:
        while not self._left:
            self._due.clear()
            following = self.registration.record(await self._complaint())
            if following.line:
                say = logger.warning if following.is_bad else logger.info
                say("%s", following.line, extra={"gateway": self.url})
            await self._wait(following.delay_s)

    async def _wait(self, delay_s: float) -> None:
        if self._left:
            return
        timer = self._clock.call_at(self._clock.monotonic_s() + delay_s, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    async def _complaint(self) -> str:
        """Send a heartbeat; return what is wrong, "" for nothing."""
        try:
            beat = self._last = await self._heartbeat()
            answer = await self._send("POST", NODES_PATH, msgspec.json.encode(beat))
        except BackendFailed as error:
            return str(error)
        except Exception as error:  # a bug of ours must not end the heartbeats
            logger.exception("cannot send a heartbeat to %s", self.url)
            return f"{type(error).__name__}: {error}"
        return "" if answer.status in (200, 201) else _refusal(answer)

    async def _send(self, method: str, path: str, body: bytes = b"") -> Fetched:
        host = urlsplit(self.url).netloc
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {host}\r\n{TOKEN_HEADER}: {self._token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        # A connection of its own each time: one that was kept would fail after a restart.
        return await fetch(self._pool, head.encode(), body, limit_s=ANSWER_S, fresh=True)


class _GatewayError(msgspec.Struct):
    message: str = ""


class _GatewayErrorBody(msgspec.Struct):
    error: _GatewayError


def _refusal(answer: Fetched) -> str:
    """Return why a gateway rejects us, in its own words."""
    try:
        words = msgspec.json.decode(answer.body, type=_GatewayErrorBody).error.message[:WORDS_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError):
        words = ""
    if answer.status == 404 and not words:
        words = "is this a Forebay gateway?"
    return f"it answered {answer.status}" + (f": {words}" if words else "")


def _target(url: str) -> Target:
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls, ANSWER_S)


class GuardOptions(Struct, frozen=True, kw_only=True):
    """One guard; URLs are plain roots, as `forebay.settings` makes them."""

    backend: str
    """The URL of the server that it guards."""
    host: str = "127.0.0.1"
    port: int = 7900
    slots: int = 0
    """Requests let through at once; 0 takes what the backend reports, and 1 if it reports none."""
    model_slots: Mapping[str, int] = {}
    """Requests of some models, by pattern, that gateways may send beside these."""
    gateways: tuple[str, ...] = ()
    advertise: str = ""
    """Where gateways reach the guard; "" is the address it listens on."""
    name: str = ""
    """Its name in the gateways; "" is made of the advertised address."""
    token: str = ""
    api_key: str = ""
    """The key that the backend wants."""
    run_s: float = 3600.0
    """The longest that one request may run; 0 is no limit."""
    shutdown_s: float = 30.0


class GuardLimits(Struct):
    """What the guard's listening socket allows: a gateway in front has sorted the clients out."""

    body_max_bytes: int = 268_435_456
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 300.0
    write_seconds: float = 30.0
    connections_max: int = 1024


class Guard:
    """Everything of one guard. `start` and `stop` may be called twice."""

    def __init__(
        self, options: GuardOptions, clock: Timers | None = None, gpu: GpuMeter | None = None
    ) -> None:
        """Prepare it; raises `SettingsError` for a URL or a name that makes no sense."""
        self.options = options
        self._clock = clock or LoopClock(asyncio.get_running_loop())
        node = parse_node({"url": options.backend, "slots": options.slots})
        self._beside = sum(options.model_slots.values())
        self.slots = Slots(self._beside + (options.slots or 1))
        self.backend = Backend(
            node, options.api_key or None, self._changed, self._clock, gpu or GpuMeter()
        )
        self._kv = CacheReader(self.backend, self._clock)
        classifier = RequestClassifier(
            HostGuard(options.host, _names(options), ()),
            options.token,
            urlsplit(node.url).netloc,
            options.api_key,
        )
        self._proxy = GuardProxy(classifier, self.slots, options.run_s, self._clock)
        self._proxy.pool = self.backend.pool
        self._proxy.backend_failed = self._lost
        self._proxy.status = self.status
        self._proxy.request_ended = self._made_room
        self._server = Server(self._proxy, GuardLimits(), self._clock, Budget(BODIES_BYTES_MAX))
        self._instance = secrets.token_hex(8)
        self._listening: asyncio.Server | None = None
        self.port = options.port
        """The port it listens on; chosen by the system where that was left to it."""
        self.announcers: list[Announcer] = []
        self._announced = ("", 0)  # what the last extra heartbeat was about
        self._room_timer: TimerHandle | None = None
        self._hurried = asyncio.Event()
        self._stopping = False

    # -- status

    @property
    def url(self) -> str:
        host = self.options.host
        if host in WILDCARDS:
            host = "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        return self.options.advertise or f"http://{shown}:{self.port}"

    @property
    def name(self) -> str:
        return self.options.name or name_of_url(self.url)

    @property
    def state(self) -> GuardState:
        if self._proxy.draining:
            return "draining"
        told = self.backend.told.state
        if told in ("loading", "offline"):
            return "loading" if told == "loading" else "offline"
        return "busy" if self.slots.in_flight else "idle"

    def status(self) -> dict[str, object]:
        """Return what `/guard/status` shows."""
        backend = self.backend
        return {
            "state": self.state,
            "name": self.name,
            "slots": self.slots.size,
            "model_slots": dict(self.options.model_slots),
            "in_flight": self.slots.in_flight,
            "passed_total": self.slots.taken,
            "refused_total": self.slots.refused,
            "gpu_load": backend.gpu_load,
            "vram_used_bytes": backend.vram_used_bytes,
            "vram_total_bytes": backend.vram_total_bytes,
            "kv_free_tokens": self._kv.free_tokens,
            "backend": backend.settings.url,
            "kind": backend.kind or None,
            "backend_version": backend.version or None,
            "models": list(backend.told.models),
            "last_error": backend.last_error or None,
            "gateways": [
                {
                    "url": one.url,
                    "registered": one.registration.registered,
                    "error": one.registration.complaint or None,
                }
                for one in self.announcers
            ],
            "version": __version__,
        }

    async def heartbeat(self) -> GuardHeartbeat:
        """Return the next heartbeat, with the GPU and the cache as they are now."""
        backend = self.backend
        await backend.read_gpu()
        await self._kv.read()
        return GuardHeartbeat(
            name=self.name,
            url=self.url,
            instance=self._instance,
            state=self.state,
            slots=self.slots.size - self._beside,
            model_slots=dict(self.options.model_slots),
            in_flight=self.slots.in_flight,
            gpu_load=backend.gpu_load,
            vram_used_bytes=backend.vram_used_bytes,
            vram_total_bytes=backend.vram_total_bytes,
            kv_free_tokens=self._kv.free_tokens,
            kind=backend.kind,
            version=backend.version[:256],
        )

    # -- lifecycle

    async def start(self) -> None:
        """Listen, ask the backend, and register; raises OSError when the port is taken."""
        if self._listening is not None:
            return
        options = self.options
        self._listening = await self._server.listen(host=options.host, port=options.port)
        self.port = int(self._listening.sockets[0].getsockname()[1])
        self.backend.start()
        with contextlib.suppress(TimeoutError):  # the next probe finds it
            async with asyncio.timeout(FIRST_PROBE_S):
                await self.backend.first_probe()
        self.announcers = [
            Announcer(url, options.token, self.heartbeat, self._clock) for url in options.gateways
        ]
        for announcer in self.announcers:
            announcer.start()

    def drain(self) -> None:
        """Accept nothing more, and tell the gateways so; what runs may finish."""
        if not self._proxy.draining:
            self._proxy.draining = True
            self._send_heartbeats()

    def hurry(self) -> None:
        """Stop without waiting for what runs."""
        self._hurried.set()

    async def stop(self, grace_s: float | None = None) -> None:
        """Drain, wait for what runs up to a limit, deregister, and close everything."""
        if self._stopping:
            return
        self._stopping = True
        self.drain()
        await self._finished_or_hurried(self.options.shutdown_s if grace_s is None else grace_s)
        await asyncio.gather(*(announcer.stop() for announcer in self.announcers))
        if self._listening is not None:
            self._listening.close()
        self._proxy.stop()
        self._server.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._server.emptied()
        self._server.abort()
        if self._room_timer is not None:
            self._room_timer.cancel()
        self.backend.stop()

    async def _finished_or_hurried(self, limit_s: float) -> None:
        if not self.slots.in_flight:
            return
        waits = [
            asyncio.ensure_future(self._proxy.finished()),
            asyncio.ensure_future(self._hurried.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop(0.0)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(0.0)

    # -- from the backend

    def _changed(self, _: Event) -> None:
        """Take what a probe has found; the slots only from a backend that is online."""
        backend = self.backend
        kind = backend.told.slots_kind
        if not self.options.slots and kind != "fixed":
            self.slots.resize(self._beside + (backend.told.slots if kind == "named" else 1))
        state = (backend.told.state, self.slots.size)
        if state != self._announced:  # else probes and heartbeats would cause each other
            self._announced = state
            self._send_heartbeats()

    def _made_room(self) -> None:
        """Tell soon what room there is now: those who wait for it would lose up to two seconds."""
        if self._kv.free_tokens is not None and self._room_timer is None:
            at_s = self._clock.monotonic_s() + ROOM_S
            self._room_timer = self._clock.call_at(at_s, self._tell_room)

    def _tell_room(self) -> None:
        self._room_timer = None
        self._send_heartbeats()

    def _lost(self, kind: str) -> None:
        """Ask the backend anew; whether a broken connection counts is for the gateways to say."""
        self.backend.failed(kind, "", "", -inf)

    def _send_heartbeats(self) -> None:
        for announcer in self.announcers:
            announcer.send_now()


def _names(options: GuardOptions) -> tuple[str, ...]:
    """Return what is taken as Host; nothing leaves it to the rule for the address.

    A guard on loopback that is advertised elsewhere has a proxy in front, which may pass the
    advertised name on.
    """
    if not options.advertise or not is_loopback_name(options.host):
        return ()
    return ("localhost", "127.0.0.1", "::1", urlsplit(options.advertise).hostname or "")
