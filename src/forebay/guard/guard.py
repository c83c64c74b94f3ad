"""One guard: its listening socket, its backend, its gateways; how it starts and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from forebay import __version__
from forebay.clock import LoopClock
from forebay.guard.announcer import Announcer
from forebay.guard.asked import Reader
from forebay.guard.beat import Beat
from forebay.guard.front import Front
from forebay.guard.options import GuardLimits
from forebay.guard.slots import Slots
from forebay.nodes.backend import Backend
from forebay.nodes.gpu import GpuMeter
from forebay.settings import parse_node
from forebay.settings.addresses import is_loopback_name, name_of_url
from forebay.wire.budget import Budget
from forebay.wire.hosts import HostGuard
from forebay.wire.server import Server

if TYPE_CHECKING:
    from typing import Self

    from forebay.clock import Timers
    from forebay.core import Event
    from forebay.guard.beat import GuardState
    from forebay.guard.options import GuardOptions

logger = logging.getLogger("forebay.guard")

FIRST_PROBE_S: Final = 5.0
CLOSING_S: Final = 1.0
"""How long the last bytes may take to leave."""
BACKLOG: Final = 1024
BODIES_BYTES_MAX: Final = 1_073_741_824
"""What all bodies that have not been answered may weigh together; gateways hold fewer."""
EVERYWHERE: Final = ("0.0.0.0", "::", "")
"""Hosts to listen on that are no address to be reached at."""


class Guard:
    """Everything of one guard. `start` and `stop` may be called twice."""

    def __init__(
        self, options: GuardOptions, clock: Timers | None = None, gpu: GpuMeter | None = None
    ) -> None:
        """Prepare it; raises `SettingsError` for a URL or a name that makes no sense."""
        self.options = options
        self._clock = clock or LoopClock(asyncio.get_running_loop())
        node = parse_node({"url": options.backend, "slots": options.slots})
        self.slots = Slots(options.slots or 1)
        self.backend = Backend(
            node, options.api_key or None, self._changed, self._clock, gpu or GpuMeter()
        )
        reader = Reader(
            HostGuard(options.host, _names(options), ()),
            options.token,
            urlsplit(node.url).netloc,
            options.api_key,
        )
        self._front = Front(reader, self.slots, options.run_s, self._clock)
        self._front.pool = self.backend.pool
        self._front.backend_failed = self._lost
        self._front.status = self.status
        self._server = Server(self._front, GuardLimits(), self._clock, Budget(BODIES_BYTES_MAX))
        self._instance = secrets.token_hex(8)
        self._listening: asyncio.Server | None = None
        self.port = options.port
        """The port it listens on; chosen by the system where that was left to it."""
        self.announcers: list[Announcer] = []
        self._said = ("", 0)  # what was worth a heartbeat of its own
        self._hurried = asyncio.Event()
        self._stopping = False

    # -- what it says of itself

    @property
    def url(self) -> str:
        """Where gateways reach it."""
        host = self.options.host
        if host in EVERYWHERE:
            host = "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        return self.options.advertise or f"http://{shown}:{self.port}"

    @property
    def name(self) -> str:
        """Its name in the gateways."""
        return self.options.name or name_of_url(self.url)

    @property
    def state(self) -> GuardState:
        """What it is doing, in a word."""
        if self._front.draining:
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
            "in_flight": self.slots.in_flight,
            "passed_total": self.slots.taken,
            "refused_total": self.slots.refused,
            "gpu_load": backend.gpu_load,
            "vram_used_bytes": backend.vram_used_bytes,
            "vram_total_bytes": backend.vram_total_bytes,
            "backend": backend.settings.url,
            "kind": backend.kind or None,
            "backend_version": backend.version or None,
            "models": list(backend.told.models),
            "last_error": backend.last_error or None,
            "gateways": [
                {
                    "url": one.url,
                    "registered": one.episode.registered,
                    "error": one.episode.complaint or None,
                }
                for one in self.announcers
            ],
            "version": __version__,
        }

    async def beat(self) -> Beat:
        """Return the next heartbeat, with the GPU as it is now."""
        backend = self.backend
        await backend.read_gpu()
        return Beat(
            name=self.name,
            url=self.url,
            instance=self._instance,
            state=self.state,
            slots=self.slots.size,
            in_flight=self.slots.in_flight,
            gpu_load=backend.gpu_load,
            vram_used_bytes=backend.vram_used_bytes,
            vram_total_bytes=backend.vram_total_bytes,
            kind=backend.kind,
            version=backend.version[:256],
        )

    # -- lifecycle

    async def start(self) -> None:
        """Listen, ask the backend, and register; raises OSError when the port is taken."""
        if self._listening is not None:
            return
        options = self.options
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self._server.protocol, options.host, options.port, backlog=BACKLOG
        )
        self.port = int(self._listening.sockets[0].getsockname()[1])
        self.backend.start()
        with contextlib.suppress(TimeoutError):  # it will be found later, by its next probe
            async with asyncio.timeout(FIRST_PROBE_S):
                await self.backend.first_probe()
        self.announcers = [
            Announcer(url, options.token, self.beat, self._clock) for url in options.gateways
        ]
        for announcer in self.announcers:
            announcer.start()

    def drain(self) -> None:
        """Take nothing more, and tell the gateways so; what runs may finish."""
        if not self._front.draining:
            self._front.draining = True
            self._hasten()

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
        self._front.stop()
        self._server.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._server.emptied()
        self._server.abort()
        self.backend.stop()

    async def _finished_or_hurried(self, limit_s: float) -> None:
        if not self.slots.in_flight:
            return
        waits = [
            asyncio.ensure_future(self._front.finished()),
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
        """Take what a probe has found out; the slots only from a backend that is well."""
        backend = self.backend
        if not self.options.slots and backend.health.phase == "online":
            self.slots.resize(backend.told.slots)
        said = (backend.told.state, self.slots.size)
        if said != self._said:  # a heartbeat may ask for a probe: it must not ask for a heartbeat
            self._said = said
            self._hasten()

    def _lost(self, kind: str) -> None:
        self.backend.failed(kind, "", "")

    def _hasten(self) -> None:
        for announcer in self.announcers:
            announcer.hasten()


def _names(options: GuardOptions) -> tuple[str, ...]:
    """Return what is taken as Host; nothing leaves it to the rule for the address.

    A guard on loopback that is advertised elsewhere has a proxy in front, which may pass the
    advertised name on.
    """
    if not options.advertise or not is_loopback_name(options.host):
        return ()
    return ("localhost", "127.0.0.1", "::1", urlsplit(options.advertise).hostname or "")
