"""The gateway: its parts, its listening socket, its start and its shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import partial
from typing import TYPE_CHECKING

from forebay.clock import LoopClock
from forebay.core import ShutDown
from forebay.gateway.application import make_application, make_routed
from forebay.gateway.hot.asgi_bridge import Cold
from forebay.gateway.hot.front import Front
from forebay.gateway.parts import Parts
from forebay.gateway.worker_role import WorkerRole
from forebay.gateway.workers.listeners import Listeners
from forebay.wire.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Self

    from forebay.clock import Timers
    from forebay.core import Audit
    from forebay.gateway.hot.access_log import AccessLog
    from forebay.gateway.traces import Traces
    from forebay.gateway.workers.seat import Seat
    from forebay.relay.watchdog import Orphan
    from forebay.settings import ServerSettings, Settings

CLOSING_S = 1.0
"""How long the last bytes may take to be sent, once everything has been answered."""


class Gateway:
    """One gateway process.

    `start` returns once it listens and has probed every configured node once. `stop` rejects
    waiting requests at once, lets running ones finish up to a limit, and returns when all has
    stopped.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        settings: Settings,
        *,
        clock: Timers | None = None,
        environ: Mapping[str, str] | None = None,
        log: AccessLog | None = None,
        traces: Traces | None = None,
        read_settings: Callable[[], Settings] | None = None,
        seat: Seat | None = None,
    ) -> None:
        """`seat` is its place among the workers, where several processes share the port."""
        self._clock = clock or LoopClock(asyncio.get_running_loop())
        self._log = log
        self._traces = traces
        self.parts = parts = Parts(
            settings,
            self._clock,
            environ=environ,
            log=log,
            traces=traces,
            read_settings=read_settings,
            seat=seat,
        )
        server = settings.server
        routed = make_routed(parts)
        self._cold = Cold(make_application(parts, routed), server.idle_seconds, parts.bodies)
        front = Front(
            parts.admission,
            parts.relay,
            parts.error_renderer,
            parts.accounting,
            parts.inflations,
            self._cold,
        )
        limits = _limits(server, seat)
        self._server = Server(front, limits, self._clock, parts.bodies, parts.connections)
        self.role: WorkerRole | None = None
        """What it does as one of several workers."""
        if seat is not None:
            listeners = Listeners(seat.sockets, partial(self._server.listen, tls=_tls(server)))
            self.role = WorkerRole(seat, parts, routed, listeners)
        self._listening: asyncio.Server | None = None
        self._stopping = False
        self._hurried = asyncio.Event()

    async def start(self, *, probe_s: float = 5.0) -> None:
        """Listen, and probe every configured node once; raises OSError when the port is taken."""
        if self.role is not None:
            await self.role.start(probe_s)
            return
        await self.parts.start_records()
        server = self.parts.settings.server
        self._listening = await self._server.listen(
            host=server.host, port=server.port, tls=_tls(server)
        )
        self.parts.guarded.start()
        for node in self.parts.settings.nodes:
            self.parts.nodes.add(node)
        with contextlib.suppress(TimeoutError):  # a later probe will find it
            await self.parts.nodes.first_probes(probe_s)
        await self.parts.membership.start(self.parts.settings, self.port)
        await self.parts.jobs.start()
        await self.parts.sessions.start()
        self.parts.dashboard_feed.start()
        self.parts.watchdog.start()
        self.parts.key_rates.start()

    @property
    def port(self) -> int:
        """The port it listens on, chosen by the system where the settings say 0."""
        if self.parts.seat is not None:
            return self.parts.seat.port
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    async def drain(self) -> None:
        """Accept nothing more: waiting requests get 503 at once, running ones may finish."""
        self.parts.readiness.draining = True
        self.parts.jobs.drain()
        self.parts.sessions.drain()
        self.parts.coordinator.post(ShutDown())
        self.parts.nodes.wake()
        if self.role is None:  # else all stop together, and nobody is to take over
            self.parts.coordinator.resign()

    async def stop(self, grace_s: float | None = None) -> None:
        """Drain, wait for running requests up to a limit, and close all; may be called twice."""
        if self._stopping:
            return
        self._stopping = True
        parts = self.parts
        await self.drain()
        limit_s = parts.settings.server.shutdown_seconds if grace_s is None else grace_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._finished_or_hurried(limit_s)
        if self._listening is not None:
            self._listening.close()
        if self.role is not None:
            await self.role.stop(CLOSING_S)
        for exchange in list(parts.relay.exchanges.values()):
            parts.relay.revoke(exchange.id, "shutting_down")
        await parts.sessions.finish()
        parts.peers.stop()
        parts.dashboard_feed.stop()
        parts.watchdog.stop()
        parts.key_rates.stop()
        self._server.stop()
        await self._cold.stop(CLOSING_S)
        await parts.jobs.stop()
        await parts.sessions.stop()
        parts.ended.flush()  # of all that has ended, before its usage is written for the last time
        await parts.records.stop()
        with contextlib.suppress(TimeoutError):  # clients that do not read are cut off
            async with asyncio.timeout(CLOSING_S):
                await self._server.emptied()
        self._server.abort()
        parts.guarded.stop()
        parts.node_commands.stop()
        parts.membership.stop()
        parts.nodes.stop()
        parts.relay.stop()
        parts.inflations.stop()
        await parts.coordinator.close()
        parts.ended.flush()
        if self._log is not None:
            self._log.stop()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.stop)

    def check_itself(self, broken: Callable[[list[str]], None]) -> None:
        """Compare core, relay and sockets once a second; call `broken` where they disagree."""

        def looked(audit: Audit, orphans: Collection[Orphan]) -> None:
            if faults := self.parts.holdings.faults(audit, orphans):
                broken(faults)

        self.parts.watchdog.on_look = looked

    def hurry(self) -> None:
        """Stop without waiting for running requests."""
        self._hurried.set()

    async def _finished_or_hurried(self, limit_s: float) -> None:
        async def finished() -> None:
            await self.parts.relay.finished()
            await self.parts.jobs.finished(limit_s)

        waits: list[asyncio.Future[None]] = [
            asyncio.ensure_future(finished()),
            asyncio.ensure_future(self._hurry()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _hurry(self) -> None:
        await self._hurried.wait()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop(0.0)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(0.0)


def _limits(server: ServerSettings, seat: Seat | None) -> ServerSettings:
    """Return the limits of one process: those that are for all workers are divided."""
    if seat is None:
        return server
    return server.model_copy(update={"connections_max": seat.part(server.connections_max)})


def _tls(server: ServerSettings) -> ssl.SSLContext | None:
    if not server.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(server.tls_cert, server.tls_key)
    return context
