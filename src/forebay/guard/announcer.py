"""Keeps one gateway informed: heartbeats while the guard lives, a farewell when it goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from forebay.errors import BackendFailed
from forebay.guard.beat import NODES_PATH
from forebay.guard.episode import Episode
from forebay.guard.token import TOKEN_HEADER
from forebay.wire.client import ConnectionPool, Target
from forebay.wire.fetch import Fetched, fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.clock import Timers
    from forebay.guard.beat import Beat

logger = logging.getLogger("forebay.guard")

ANSWER_S: Final = 2.0
"""How long a gateway may take to answer a heartbeat."""
WORDS_MAX: Final = 500


class Announcer:
    """One gateway of a guard. `start` and `stop` may be called twice."""

    def __init__(
        self, url: str, token: str, beat: Callable[[], Awaitable[Beat]], clock: Timers
    ) -> None:
        self.url = url
        self.episode = Episode()
        self._token = token
        self._beat = beat
        self._clock = clock
        self._pool = ConnectionPool(_target(url))
        self._due = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._left = False
        self._last: Beat | None = None

    def start(self) -> None:
        """Begin to send heartbeats."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def hasten(self) -> None:
        """Send the next one now: something has changed that the gateway should know."""
        self._due.set()

    async def stop(self) -> None:
        """Send no more, and say goodbye where we are known; never raises, bounded in time."""
        if self._left:
            return
        self._left = True
        self._due.set()
        if self._running is not None:
            await self._running  # one on its way must not arrive after the goodbye
        if self._last is not None and self.episode.registered:
            path = f"{NODES_PATH}/{self._last.name}?instance={self._last.instance}"
            with contextlib.suppress(BackendFailed):  # it will miss us soon enough
                await self._send("DELETE", path)
        self._pool.close()

    async def _run(self) -> None:
        while not self._left:
            self._due.clear()
            following = self.episode.took(await self._complaint())
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
            beat = self._last = await self._beat()
            answer = await self._send("POST", NODES_PATH, msgspec.json.encode(beat))
        except BackendFailed as error:
            return str(error)
        except Exception as error:  # a bug of ours must not end the heartbeats
            logger.exception("sending a heartbeat failed")
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


class _Error(msgspec.Struct):
    message: str = ""


class _Refused(msgspec.Struct):
    error: _Error


def _refusal(answer: Fetched) -> str:
    """Return what a gateway says about why it does not take us."""
    try:
        words = msgspec.json.decode(answer.body, type=_Refused).error.message[:WORDS_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError):
        words = ""
    if answer.status == 404 and not words:
        words = "is this a Forebay gateway?"
    return f"it answered {answer.status}" + (f": {words}" if words else "")


def _target(url: str) -> Target:
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls, ANSWER_S)
