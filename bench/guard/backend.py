"""A backend that answers at once: `python -m bench.guard.backend`, which prints its port.

As little as can stand behind a guard: whatever comes is one whole request, and every POST has the
same answer.
"""

from __future__ import annotations

import asyncio

import uvloop

MODELS = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"bench"}]}'
ANSWER = b'{"id":"x","object":"chat.completion","choices":[{"message":{"content":"%b"}}]}' % (
    b"word " * 80
)


def _whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


LISTED, ANSWERED = _whole(MODELS), _whole(ANSWER)


class Backend(asyncio.Protocol):
    """One connection; requests come whole, because the load sends them so."""

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override] # sockets have no other kind
    ) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWERED if data.startswith(b"POST") else LISTED)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
