"""One client's conversation over one connection, and the requests it is made of."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from .answers import Malformed, take_answer
from .oracle import CLEAR, IF_CUT, Ask, Oracle
from .tokens import foreign, new_token
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from .oracle import Ending

PATIENCE_S = 30.0
"""How long a client waits for an answer: far above every limit of the gateway under test."""
SOME_S = 0.5
"""How long a client waits that means to leave in the middle."""
CHAT = "/v1/chat/completions"


class Stopped(Exception):
    """This conversation cannot go on; what there is to say of it has been said."""


class Talk:
    """A client: what it sends, what it expects, and how it leaves."""

    def __init__(self, name: str, port: int, rng: Random, oracle: Oracle) -> None:
        self.name = name
        self.rng = rng
        self.oracle = oracle
        self._port = port
        self._wire: Wire | None = None
        self._open: list[Ask] = []  # asked, and not answered yet
        self._left = False
        self.closes = False
        """The last answer said that the connection ends."""

    # -- requests

    def ask(
        self,
        script: str = "whole",
        model: str = "good",
        *,
        stream: bool | None = None,
        may: frozenset[Ending] | None = None,
        headers: Sequence[str] = (),
        pad: int = 0,
        path: str = CHAT,
        version: str = "HTTP/1.1",
    ) -> Ask:
        """Make a request; it is not sent yet."""
        token, rng = new_token(self.rng), self.rng
        stream = rng.random() < 0.3 if stream is None else stream
        body = self.body(token, script, model, stream=stream, pad=pad)
        lines = [f"POST {path} {version}", "host: 127.0.0.1", f"x-request-id: {token}"]
        lines += ["content-type: application/json", f"content-length: {len(body)}", *headers]
        if may is None:
            may = CLEAR if model == "good" else IF_CUT
        self.oracle.asked += 1
        self.oracle.scripts[token] = script
        data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        return Ask(token, data, may, script=" ".join((script, *headers))[:80])

    def raw(self, token: str, data: bytes, may: frozenset[Ending], *, hot: bool = True) -> Ask:
        """Count a request of any form."""
        self.oracle.asked += 1
        return Ask(token, data, may, hot)

    def body(self, token: str, script: str, model: str, *, stream: bool, pad: int = 0) -> bytes:
        return json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": "z" * pad}],
                "stream": stream,
                "user": f"u{self.rng.randrange(8)}",
                "token": token,
                "script": script,
            }
        ).encode()

    def page(self, path: str, may: frozenset[Ending] | None = None, method: str = "GET") -> Ask:
        """Make a request for something that is not relayed."""
        token = new_token(self.rng)
        data = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-request-id: {token}\r\n\r\n"
        allowed: frozenset[Ending] = frozenset({"shown", "error"})
        return self.raw(token, data.encode(), may or allowed, hot=False)

    # -- sending

    async def open(self) -> Wire:
        if self._wire is None:
            try:
                self._wire = await Wire.connect(self._port)
            except OSError as error:
                self.oracle.fail(self.name, f"no connection: {error}")
                raise Stopped from error
        return self._wire

    async def send(self, *asks: Ask) -> None:
        """Send requests at once, all in one piece."""
        await self.put(b"".join(ask.data for ask in asks), *asks)

    async def put(self, data: bytes, *asks: Ask) -> None:
        """Send these bytes, with which these requests are asked."""
        wire = await self.open()
        self._open += asks
        wire.send(data)

    async def dribble(self, ask: Ask, pieces: int, pause_s: float = 0.0) -> None:
        """Send a request in so many pieces, or byte by byte."""
        wire, data = await self.open(), ask.data
        self._open.append(ask)
        places = sorted(self.rng.randrange(1, len(data)) for _ in range(min(pieces, 2000)))
        if pieces >= len(data):
            places = list(range(1, len(data)))
        for start, end in zip([0, *places], [*places, len(data)], strict=True):
            wire.send(data[start:end])
            await asyncio.sleep(pause_s)
            if wire.ended:
                return

    # -- hearing

    async def hear(self) -> None:
        """Take the answer to the oldest request."""
        wire, ask = await self.open(), self._open.pop(0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := take_answer(wire.received, ended=wire.ended)) is None:
                    if wire.ended:
                        break
                    await wire.more()
        except TimeoutError:
            self.oracle.fail(self.name, f"{ask} has no answer in {PATIENCE_S:g} s")
            raise Stopped from None
        except Malformed as error:
            self.oracle.fail(self.name, f"{ask} got no HTTP: {error}")
            raise Stopped from None
        self.oracle.judge(self.name, ask, answer)
        self.closes = answer is None or answer.closes or not answer.whole

    async def hear_all(self) -> None:
        """Take all answers, in order; what comes after one that closes is not answered."""
        while self._open:
            if self.closes:
                self.leave_unanswered("none")
                return
            await self.hear()

    async def hear_some(self, size_bytes: int) -> None:
        """Wait until so much has come, without looking at it, but not for long."""
        wire = await self.open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SOME_S):
                while len(wire.received) < size_bytes and not wire.ended:
                    await wire.more()

    # -- leaving

    def leave_unanswered(self, ending: Ending = "left") -> None:
        """Know that what is still open gets no answer; what has come of it must be its own."""
        self._left = True
        own = {ask.token for ask in self._open}
        if self._wire is not None and own:
            strangers = foreign(bytes(self._wire.received), "") - own
            if strangers:
                self.oracle.fail(self.name, f"{sorted(own)} got {sorted(strangers)}")
        for _ in self._open:
            self.oracle.end(ending)
        self._open = []

    def reset(self) -> None:
        """Break off."""
        self.leave_unanswered()
        if self._wire is not None:
            self._wire.reset()

    def close(self) -> None:
        """Close; where everything was answered nothing more may have come."""
        wire = self._wire
        if wire is None:
            return
        if not (self._left or self._open) and wire.received:
            self.oracle.fail(self.name, f"more than was asked for: {bytes(wire.received[:200])!r}")
        self.leave_unanswered()
        wire.close()

    async def hush(self, seconds: float) -> None:
        """Wait whether something comes that was not asked for."""
        wire = await self.open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not wire.received and not wire.ended:
                    await wire.more()
