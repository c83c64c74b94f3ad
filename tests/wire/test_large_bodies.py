"""A large body lets others have their turn: it is read and sent in pieces, one in each turn."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from forebay.testing import FakeClock
from forebay.wire.budget import Budget
from forebay.wire.client import SENT_BYTES, NodeConnection
from forebay.wire.pool import ConnectionPool, Target
from forebay.wire.server import Server

from .test_connection import LIMITS, Site, Taken

if TYPE_CHECKING:
    from forebay.wire.client import AnswerListener

BODY = bytes(range(256)) * 32_768  # 8 MiB
READ_BYTES_MAX = 262_144  # what uvloop reads at once


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/cold"])
async def test_of_a_body_that_is_all_there_one_piece_is_read_in_each_turn(path: str) -> None:
    site = Site()
    site.taken = Taken()
    server = Server(site, LIMITS, FakeClock(), Budget(4 * len(BODY)))
    server.body_bytes_max = len(BODY)
    loop = asyncio.get_running_loop()
    ours, client = socket.socketpair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(BODY))
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(BODY))
    sender = threading.Thread(target=client.sendall, args=(head + BODY,))
    sender.start()
    turns, read, most = 0, {"in this turn": 0}, 0
    connection = server.protocol()
    received = connection.data_received

    class Counting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            connection.connection_made(transport)

        def data_received(self, data: bytes) -> None:
            read["in this turn"] += 1
            received(data)

    await loop.connect_accepted_socket(Counting, ours)
    while not site.bodies and len(site.taken.data) < len(BODY):
        read["in this turn"] = 0
        await asyncio.sleep(0)
        turns += 1
        most = max(most, read["in this turn"])
    sender.join()
    client.close()
    assert site.bodies == [BODY] or site.taken.data.endswith(BODY)
    assert most == 1
    assert turns >= len(BODY) // READ_BYTES_MAX


async def test_of_a_body_one_piece_is_sent_in_each_turn_however_fast_the_node_reads() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as node:
        pool = ConnectionPool(Target("127.0.0.1", node.getsockname()[1], None, 5.0))
        connection = await pool.connect()
        taken, _ = await loop.run_in_executor(None, node.accept)
    taken.setblocking(False)
    seen, ended = bytearray(), asyncio.Event()

    def read_all() -> None:
        with suppress(BlockingIOError):
            while data := taken.recv(1 << 20):
                seen.extend(data)
            loop.remove_reader(taken)
            ended.set()

    loop.add_reader(taken, read_all)
    sizes: list[int] = []
    real = cast("Any", connection)._transport

    class Counting:
        def write(self, data: Any) -> None:
            sizes[-1] += len(data)
            real.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    connection._transport = cast("Any", Counting())
    sizes.append(0)
    connection.send(b"POST / HTTP/1.1\r\n\r\n", BODY, cast("AnswerListener", None))
    while connection._unsent:
        sizes.append(0)
        await asyncio.sleep(0)
    assert isinstance(connection, NodeConnection)
    real.close()
    await ended.wait()
    taken.close()
    assert bytes(seen).endswith(BODY)
    assert max(sizes) <= SENT_BYTES + 100
