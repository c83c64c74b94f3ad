"""One worker of several: start, shutdown, and the transition to leader.

The leader owns what there must be one of: the databases, probing the nodes,
the page's history. A worker leads until it dies, so none of that is ever given up alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from forebay.coordination.workers.messages import Ready
from forebay.gateway.workers.door import Door

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from forebay.gateway.parts import Parts
    from forebay.gateway.workers.listeners import Listeners
    from forebay.gateway.workers.seat import Seat

logger = logging.getLogger("forebay.gateway")


class WorkerRole:
    """Joins the other workers, serves what they forward, and becomes leader when elected."""

    def __init__(self, seat: Seat, parts: Parts, app: ASGIApp, listeners: Listeners) -> None:
        assert parts.workers is not None
        self._seat = seat
        self._parts = parts
        self._workers = parts.workers
        self._door = Door(app, seat.door)
        self._listeners = listeners
        self._leading: asyncio.Task[None] | None = None
        self.led = asyncio.Event()
        """Set once this worker leads, and has taken over what the leader does."""
        self.on_failure: Callable[[BaseException], None] = _unheard

    async def start(self, probe_s: float) -> None:
        """Join, take over if this one leads, and accept connections."""
        seat, parts = self._seat, self._parts
        store = seat.store
        await store.open()
        await self._door.start()
        await parts.membership.start(parts.settings, seat.port)
        store.on_leading = self._lead_if_chosen
        if store.leads:
            await self._lead(probe_s)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(probe_s):
                    await self._workers.node_news.heard.wait()
            self._lead_if_chosen()
        parts.records.run()
        parts.watchdog.start()
        parts.key_rates.start()
        seat.link.on_accept = self._listeners.accept_for
        seat.link.tell(Ready())

    def _lead_if_chosen(self) -> None:
        if self._seat.store.leads and self._leading is None and not self.led.is_set():
            self._leading = asyncio.get_running_loop().create_task(self._lead(0.0))
            self._leading.add_done_callback(self._has_begun)

    def _has_begun(self, leading: asyncio.Task[None]) -> None:
        if not leading.cancelled() and (error := leading.exception()) is not None:
            logger.error("this worker cannot become leader", exc_info=error)
            self.on_failure(error)

    async def _lead(self, probe_s: float) -> None:
        """Take over what there must be one of."""
        parts = self._parts
        logger.info("worker became leader", extra={"worker": self._seat.number})
        await parts.start_records()
        parts.guarded.adopt()
        self._workers.node_news.lead()
        parts.guarded.start()
        if not self._workers.node_news.heard.is_set():  # there was no leader before
            for node in parts.settings.nodes:
                parts.nodes.replace(node)
        with contextlib.suppress(TimeoutError):  # a later probe will find it
            await parts.nodes.first_probes(probe_s)
        self._workers.figures.lead()
        await parts.jobs.start()
        await parts.sessions.start()
        await self._workers.figures.gathered()  # what the others had counted is no news
        parts.dashboard_feed.start()
        self.led.set()

    async def stop(self, limit_s: float) -> None:
        """Serve the other workers no more; may be called twice."""
        if self._leading is not None:
            self._leading.cancel()
        self._workers.figures.stop()
        await self._listeners.stop()
        await self._door.stop(limit_s)


def _unheard(_: BaseException) -> None:
    """Nobody is interested."""
