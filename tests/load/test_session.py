"""The first look at a server, and servers that never come to an end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from forebay.load.connections import LoadPool
from forebay.load.run import AccessDenied, LoadRun, Unreachable, models_of
from forebay.testing import FakeClock, FakeNode
from forebay.testing.fake_node import within

from .making import codes, plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.load.run import Measured


async def test_the_models_of_a_server_are_listed() -> None:
    async with FakeNode(models=("a", "b")) as node:
        assert await models_of(node.url, None) == ["a", "b"]
        await node.stop_listening()
        with pytest.raises(Unreachable, match="nothing answers"):
            await models_of(node.url, None)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", None),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{"data": [{"id": [1]}]}', None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + b"[" * 9999, None),
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", AccessDenied),
        (b"220 smtp\r\n", Unreachable),
    ],
)
async def test_a_server_without_models_is_no_fault_and_one_without_us_is(
    answer: bytes, expected: type[Exception] | None
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if expected is None:
            assert await models_of(url, None) is None
        else:
            with pytest.raises(expected):
                await models_of(url, "key")


# -- what never ends


async def hung_up_after(begin: bytes, again: bytes, asks: Callable[[str], Awaitable[Any]]) -> Any:
    """Send without end; return what is made of it, once the other side has hung up."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            while True:
                writer.write(again)
                await writer.drain()
        writer.close()
        gone.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await within(asks(url), 8.0, "it reads without end")
        await within(gone.wait(), 8.0, "it does not hang up")
    return found


CHUNK = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"


async def test_a_list_of_models_without_end_is_not_kept() -> None:
    begin = CHUNKED + b"\r\n"
    assert await hung_up_after(begin, CHUNK, lambda url: models_of(url, None)) is None


@pytest.mark.parametrize(
    ("begin", "again", "code"),
    [
        (CHUNKED + b"\r\n", CHUNK, "answer_too_large"),
        (CHUNKED + b"content-type: text/event-stream\r\n\r\n", CHUNK, "answer_too_large"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"a" * 65_536, "bad_answer"),
        (b"HTTP/1.1 200 OK\r\n", b"x: " + b"a" * 9000 + b"\r\n", "bad_answer"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n" * 99, "bad_answer"),
        (CHUNKED + b"\r\n1;", b"a" * 65_536, "bad_answer"),
        (CHUNKED + b"\r\n0\r\nx: ", b"a" * 65_536, "bad_answer"),
    ],
)
async def test_an_answer_without_end_is_hung_up_on(begin: bytes, again: bytes, code: str) -> None:
    async def ask(url: str) -> Measured:
        settings = plan(url=url, arrivals="constant", rate=1.0, duration_s=0.5, timeout_s=60.0)
        clock = FakeClock(1000.0)
        return await LoadRun(settings, settings.schedule(), LoadPool(url, None, clock), clock).run()

    assert codes(await hung_up_after(begin, again, ask)) == [code]
