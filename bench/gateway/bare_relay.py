"""A bare relay, as a yardstick: what Python itself costs, before a gateway does anything of use.

`python bare_relay.py PORT SLOTS NODE_PORT ...` passes every request on to the first node that has
a slot; those that wait lie in a heap, by priority. uvloop, httptools, callbacks, msgspec. No keys,
users, bounds, deadlines, retries, metrics or logs, and a node that hangs up takes its client along.
"""

import asyncio
import heapq
import sys
from itertools import count
from typing import cast

import httptools
import msgspec
import uvloop

HOP_BY_HOP = {b"connection", b"host", b"keep-alive", b"transfer-encoding"}


class Fields(msgspec.Struct):
    """What is read of a body."""

    model: str
    priority: int = 0


read_fields = msgspec.json.Decoder(Fields).decode


class Relay:
    """The nodes' free slots, and the requests that wait for one."""

    def __init__(self, slots: int, ports: list[int]) -> None:
        self.free = dict.fromkeys(ports, slots)
        self.idle: dict[int, list[Upstream]] = {port: [] for port in ports}
        self.waiting: list[tuple[int, int, Client, bytes]] = []
        self.number = count()
        self.dialling: set[asyncio.Task[None]] = set()

    def ask(self, client: "Client", request: bytes, priority: int) -> None:
        heapq.heappush(self.waiting, (priority, next(self.number), client, request))
        self.dispatch()

    def dispatch(self) -> None:
        while self.waiting:
            port = max(self.free, key=self.free.__getitem__)
            if not self.free[port]:
                return
            _, _, client, request = heapq.heappop(self.waiting)
            if client.transport.is_closing():
                continue
            self.free[port] -= 1
            if self.idle[port]:
                self.idle[port].pop().send(client, request)
                continue
            task = asyncio.get_running_loop().create_task(self.dial(port, client, request))
            self.dialling.add(task)
            task.add_done_callback(self.dialling.discard)

    async def dial(self, port: int, client: "Client", request: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, node = await loop.create_connection(lambda: Upstream(self, port), "127.0.0.1", port)
        except OSError:
            client.transport.close()
            self.free[port] += 1
        else:
            node.send(client, request)


class Client(asyncio.Protocol):
    """A connection of a client, one request at a time."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.parser = httptools.HttpRequestParser(self)
        self.upstream: Upstream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.head: list[bytes] = []
        self.body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in HOP_BY_HOP:
            self.head += (name, b": ", value, b"\r\n")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self.body)
        self.closes = not self.parser.should_keep_alive()
        try:
            priority = read_fields(body).priority if body else 0
        except msgspec.MsgspecError:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            return
        line = b"%b %b HTTP/1.1\r\nhost: node\r\n" % (self.parser.get_method(), self.url)
        self.relay.ask(self, line + b"".join(self.head) + b"\r\n" + body, priority)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.upstream is not None:
            self.upstream.transport.close()


class Upstream(asyncio.Protocol):
    """A connection to a node; its bytes go to the client as they are."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay, port: int) -> None:
        self.relay = relay
        self.port = port
        self.parser = httptools.HttpResponseParser(self)
        self.client: Client | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, client: Client, request: bytes) -> None:
        self.client, client.upstream = client, self
        self.says_close = self.closes = client.closes
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.client is None:
            return
        passed_on = data
        if self.says_close:
            self.says_close = False
            passed_on = data.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        self.client.transport.write(passed_on)
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        client, closes = self.client, self.closes
        self.relay.idle[self.port].append(self)
        self.release()  # which may use it again at once
        if client is not None and closes:
            client.transport.close()

    def release(self) -> None:
        if self.client is not None:
            self.client.upstream = None
            self.client = None
            self.relay.free[self.port] += 1
            self.relay.dispatch()

    def connection_lost(self, _error: Exception | None) -> None:
        if self in self.relay.idle[self.port]:
            self.relay.idle[self.port].remove(self)
        if self.client is not None:
            self.client.transport.close()
        self.release()


async def serve(port: int, slots: int, ports: list[int]) -> None:
    relay = Relay(slots, ports)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(relay), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    listen, limit, *nodes = map(int, sys.argv[1:])
    uvloop.run(serve(listen, limit, nodes))
