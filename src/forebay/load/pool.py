"""Connections to one server: those that are idle are used again, as real clients do."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forebay.load.connection import Connection
from forebay.load.samples import CONNECT_FAILED

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.load.answers import Answer

IDLE_S_MAX = 4.0
"""Below the 5 s after which common servers close: a request must not meet its connection's end."""


class Pool:
    """Sends requests to one address; no proxy is asked, whatever the environment names."""

    def __init__(self, url: str, key: str | None, clock: Clock) -> None:
        parts = urlsplit(url)
        self._clock = clock
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._lines = f"host: {parts.netloc.rpartition('@')[2]}\r\naccept: */*\r\n"
        if key:
            self._lines += f"authorization: Bearer {key}\r\n"

    async def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, answer: Answer
    ) -> None:
        """Send a request and wait until its answer has ended; it says how."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._lines}{lines}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        connection = await self._connection(answer)
        if connection is None:
            return
        try:
            await connection.exchange(f"{head}\r\n".encode("latin-1") + body, answer)
        finally:
            if connection.is_open:
                self._idle.append(connection)
            else:
                connection.close()
                self._open.discard(connection)

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports are told in the next turn of the loop

    async def _connection(self, answer: Answer) -> Connection | None:
        """Return an idle connection, the one used last first, or a new one; None if none comes."""
        now_s = self._clock.monotonic_s()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now_s - connection.idle_since_s <= IDLE_S_MAX:
                return connection
            connection.close()
            self._open.discard(connection)
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(
                lambda: Connection(self._clock), self._host, self._port, ssl=self._tls
            )
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            answer.message = reason
            answer.broken(CONNECT_FAILED, self._clock.monotonic_s())
            return None
        self._open.add(made)
        return made
