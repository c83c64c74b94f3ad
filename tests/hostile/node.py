"""The nodes: one process, a port for each; `python -m tests.hostile.node GOOD BAD` prints them.

It ends when its standard input does. `GET /report` tells what arrived that should not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import sys
from collections import Counter
from random import Random
from typing import cast

from .acts import ACTS, GOOD, Asked, whole

REQUEST = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1\r\n((?:[^\r\n]+\r\n)+)\r\n")
LENGTH = re.compile(rb"(?i)\r?\ncontent-length: ?(\d+)\r\n")
TOKEN = re.compile(rb'"token": ?"([nx]-[0-9a-f]{12})"')
SCRIPT = re.compile(rb'"script": ?"([a-z_ ]+)"')
REMEMBERED = 20_000
MODELS = {"good": ("good", "any"), "bad": ("bad", "any")}


class Gone(Exception):
    """The other side has left."""


class Log:
    """What came to all nodes."""

    def __init__(self) -> None:
        self.acts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._attempts: dict[str, int] = {}

    def attempt(self, token: str) -> int:
        """Return how often it has come before."""
        before = self._attempts.pop(token, 0)
        self._attempts[token] = before + 1
        if len(self._attempts) > REMEMBERED:
            del self._attempts[next(iter(self._attempts))]
        return before

    def fault(self, words: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(words)


class NodeLine(asyncio.Protocol):
    """One connection from the gateway."""

    def __init__(self, kind: str, log: Log) -> None:
        self._kind = kind
        self._log = log
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    # -- for the acts

    def send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise Gone
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            sock = cast("socket.socket", self._transport.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    # -- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._transport is not None and (request := self._next()) is not None:
            self._take(*request)

    def _next(self) -> tuple[bytes, bytes] | None:
        """Return the next target and body; anything but a plain request is the gateway's fault."""
        if b"\r\n\r\n" not in self._buffer:
            return None
        matched = REQUEST.match(self._buffer)
        if matched is None:
            self._log.fault(f"the gateway sent {bytes(self._buffer[:100])!r}")
            self.close()
            return None
        length = LENGTH.search(matched[0])
        end = matched.end() + (int(length[1]) if length is not None else 0)
        if len(self._buffer) < end:
            return None
        target, body = bytes(matched[2]), bytes(self._buffer[matched.end() : end])
        del self._buffer[:end]
        return target, body

    def _take(self, target: bytes, body: bytes) -> None:
        if target.endswith(b"/v1/models"):
            listed = {"data": [{"id": name} for name in MODELS[self._kind]]}
            self._answer(json.dumps(listed).encode())
        elif target == b"/report":
            told = {"acts": dict(self._log.acts), "faults": self._log.faults}
            self._answer(json.dumps(told).encode())
        elif body.startswith(b"{"):
            self._perform(target, body)
        else:  # a probe, or what a guard passes on as it is
            self._answer(b'{"error": {"message": "what is it?", "code": "not_json"}}', 400)

    def _answer(self, body: bytes, status: int = 200) -> None:
        head = b"HTTP/1.1 %d Yes\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.send(head % (status, len(body)) + body)

    def _perform(self, target: bytes, body: bytes) -> None:
        found, script = TOKEN.search(body), SCRIPT.search(body)
        if found is None or script is None:
            self._log.fault(f"asked for {target[:60]!r} with {body[:100]!r}")
            self.close()
            return
        token = found[1].decode()
        if token.startswith("x"):
            self._log.fault(f"{token} was hidden in the body of another request, and runs")
        names = script[1].decode().split(" ")
        attempt = self._log.attempt(token)
        name = names[min(attempt, len(names) - 1)]
        if self._kind == "good" and name not in GOOD:
            name = "whole"
        self._log.acts[name] += 1
        rng = Random(f"{token}/{attempt}")
        asked = Asked(token, stream=b'"stream": true' in body, rng=rng)
        self._task = asyncio.ensure_future(self._act(name, asked))

    async def _act(self, name: str, asked: Asked) -> None:
        with contextlib.suppress(Gone):
            await ACTS.get(name, whole)(self, asked)


async def serve(kinds: list[str]) -> None:
    loop, log = asyncio.get_running_loop(), Log()
    servers = [
        await loop.create_server(lambda kind=kind: NodeLine(kind, log), "127.0.0.1", 0)  # type: ignore[misc]  # a default binds it
        for kind in kinds
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


def main() -> None:
    good, bad = map(int, sys.argv[1:3])
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(["good"] * good + ["bad"] * bad))


if __name__ == "__main__":
    main()
