"""Send heartbeats to one gateway, and deregister when the guard stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from forebay.errors import BackendFailed
from forebay.guard.heartbeat import NODES_PATH, RegistrationState
from forebay.guard.token import TOKEN_HEADER
from forebay.wire.client import ConnectionPool, Target
from forebay.wire.fetch import Fetched, fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.clock import Timers
    from forebay.guard.heartbeat import GuardHeartbeat

logger = logging.getLogger("forebay.guard")

ANSWER_S: Final = 2.0
"""How long a gateway may take to answer a heartbeat."""
WORDS_MAX: Final = 500


class Announcer:
    """One gateway of a guard. `start` and `stop` may be called twice."""

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
